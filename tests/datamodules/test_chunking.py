"""CoNLL-2000 and other corpora of BIO tags: sources, features, targets, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from attnlight.batch import BOS, MARKED
from attnlight.data.sources import Source
from attnlight.data.targets import IGNORED
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.functional import draw_keys

Sentence = tuple[Sequence[str], Sequence[str], Sequence[str]]  # words, parts of speech, tags


def sentence(text: str) -> Sentence:
    """The columns of tokens as `word/part of speech/tag`."""
    words, pos, tags = zip(*(token.split("/") for token in text.split()), strict=True)
    return words, pos, tags


CAT = sentence("The/DT/B-NP cat/NN/I-NP sat/VBD/B-VP")
DOGS = sentence("Dogs/NNS/B-NP ran/VBD/B-VP ././O")
SIGN = sentence("!/./O")
HOME = sentence("A/DT/B-NP cat/NN/I-NP ran/VBD/B-VP home/RB/O ././O")
HE = sentence("He/PRP/B-NP ran/VBD/B-VP")
SENTENCES = [CAT, DOGS, SIGN, HOME, HE] * 4
NAMES = ["O", "B-NP", "I-NP", "B-VP", "I-VP", "B-LST"]
SPLITS = ("train", "validation", "test")


def write_parquet(folder: Path, named: bool = True, **splits: Sequence[Sentence]) -> Path:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    names = ("tokens", "pos_tags", "chunk_tags")
    features = datasets.Features(dict.fromkeys(names, datasets.List(datasets.Value("string"))))
    if named:
        features["chunk_tags"] = datasets.List(datasets.ClassLabel(names=NAMES))
    for split, sentences in splits.items():
        columns = dict(zip(names, map(list, zip(*sentences, strict=True)), strict=True))
        rows = datasets.Dataset.from_dict(columns, features)
        rows.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    return folder


def write_columns(folder: Path, **splits: Sequence[Sentence]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, sentences in splits.items():
        blocks = ("\n".join(map(" ".join, zip(*sentence, strict=True))) for sentence in sentences)
        (folder / f"{split}.txt").write_text("\n\n".join(blocks) + "\n\n")
    return folder


FILES: dict[str, Any] = {"word_column": 0, "pos_column": 1, "label_column": 2}
FILES |= {"train": "train.txt", "test": "test.txt"}


def corpus(folder: Path, **options: Any) -> ChunkingDataModule:
    return ChunkingDataModule(str(folder), cache_dir=str(folder.parent / "cache"), **options)


def in_files(tmp_path: Path, *test: Sentence, **options: Any) -> ChunkingDataModule:
    """The sentences, and these for testing, as column files."""
    folder = write_columns(tmp_path / "columns", train=SENTENCES, test=test, none=[])
    return corpus(folder, **(FILES | options))


def in_table(
    tmp_path: Path, *test: Sentence, named: bool = True, **more: Any
) -> ChunkingDataModule:
    """The same as parquet."""
    test = test or tuple(SENTENCES[:5])
    folder = write_parquet(tmp_path / "parquet", named, train=SENTENCES, test=test)
    return corpus(folder, **more)


def test_parquet_and_column_files_give_the_same_batches(tmp_path: Path) -> None:
    options: dict[str, Any] = {"suffixes": [2], "case": True, "characters": 8, "pos": True}
    first = in_table(tmp_path, named=False, **options)
    second = in_files(tmp_path, *SENTENCES[:5], **options)
    assert first.classes == second.classes == ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    assert first.tokenizer_json == second.tokenizer_json
    assert first.spec["features"] == second.spec["features"]
    for split in SPLITS:
        one, two = (data.dataset(split) for data in (first, second))
        assert np.array_equal(one.index, two.index)
        places = list(range(len(one)))
        one_batch, two_batch = one[places], two[places]
        assert torch.equal(one_batch.tokens, two_batch.tokens)
        assert torch.equal(one_batch.labels, two_batch.labels)  # type: ignore[arg-type]
        assert one_batch.extras.keys() == two_batch.extras.keys()
        for name, values in one_batch.extras.items():
            assert values.shape == one_batch.tokens.shape
            assert torch.equal(values, two_batch.extras[name])
            assert torch.equal(values != 0, one_batch.mask)


def test_a_batch_says_what_its_source_says(tmp_path: Path) -> None:
    data = in_table(tmp_path)
    assert data.classes == NAMES  # also the one without a tag
    assert data.label_counts[NAMES.index("B-LST")] == 0
    assert sum(data.label_counts) == data.dataset("train").lengths.sum()
    dataset = data.dataset("test")
    batch: Any = dataset[[3, 2]]
    assert batch.index.tolist() == [3, 2]
    assert batch.mask.tolist() == [[True] * 5, [True] + [False] * 4]
    assert [NAMES[n] for n in batch.labels[0].tolist()] == ["B-NP", "I-NP", "B-VP", "O", "O"]
    assert batch.labels[1].tolist() == [0, -100, -100, -100, -100]
    assert dataset.words(3) == ["A", "cat", "ran", "home", "."]
    assert batch.extras == {}
    assert not batch.attendable()[1, 1:].any()


def test_a_split_may_be_that_of_another_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "a", tmp_path / "b"
    write_parquet(folder, train=SENTENCES, test=[CAT]), write_parquet(other, test=[HOME, HE])
    test = Source(path=str(other))
    corpus = ChunkingDataModule(
        path=str(folder), revision=None, test=test, cache_dir=str(tmp_path / "c")
    )
    texts = corpus.dataset("test")
    assert [texts.words(place) for place in range(2)] == [list(HOME[0]), list(HE[0])]


def test_a_tenth_of_training_is_split_off_by_a_seed(tmp_path: Path) -> None:
    splits = [in_table(tmp_path, split_seed=n).dataset("validation").index for n in (0, 0, 1, 2)]
    assert len(splits[0]) == 2
    assert splits[0].tolist() == splits[1].tolist()
    assert len({tuple(split) for split in splits}) > 1
    train = in_table(tmp_path).dataset("train").index
    assert sorted([*train, *splits[0]]) == list(range(20))
    assert len(in_table(tmp_path, validation_fraction=0.5).dataset("validation")) == 10


def test_the_vocabulary_is_of_training_alone(tmp_path: Path) -> None:
    data = in_table(tmp_path, sentence("Zebras/NNS/B-NP ran/XX/B-VP"), pos=True, suffixes=[3])
    batch = data.dataset("test")[[0]]
    assert batch.tokens[0, 0] == 1
    assert batch.tokens[0, 1] > 3
    assert batch.extras["pos"][0, 1] == 1
    assert batch.extras["suffix_3"][0, 0] == 1


def test_empty_rows_are_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty: Sentence = ([], [], [])
    folder = write_parquet(tmp_path / "c", train=[*SENTENCES, empty], test=[*SENTENCES[:5], empty])
    data = corpus(folder)
    assert data._corpus["splits"]["train"]["dropped_by"] == {"empty": 1}
    assert "test 5 (1 dropped; " in capsys.readouterr().err
    assert data.dataset("test").index.tolist() == [0, 1, 2, 3, 4]
    assert len(data.dataset("train")) + len(data.dataset("validation")) == 20


def test_batches_hold_no_more_pairs_than_asked(tmp_path: Path) -> None:
    long: Sentence = (["cat"] * 500, ["NN"] * 500, ["B-NP"] + ["I-NP"] * 499)
    data = in_files(tmp_path, *SENTENCES[:5], long, max_pairs=27, eval_batch_size=8)
    batches = list(data.test_dataloader())
    assert sorted(int(i) for batch in batches for i in batch.index) == [0, 1, 2, 3, 4, 5]
    assert all(len(b) == 1 or len(b) * b.tokens.shape[1] ** 2 <= 27 for b in batches)
    assert (1, 500) in [batch.tokens.shape for batch in batches]
    assert len(batches) == len(data.test_dataloader())


BROKEN, OTHER = sentence("a/X/O b/X/I-NP"), sentence("Of/IN/B-PP")


def test_an_inside_without_begin_is_named_unless_it_may_begin_a_chunk(tmp_path: Path) -> None:
    message = r"from line 5 of .*test\.txt, token 1, has the tag 'I-NP'"
    with pytest.raises(InputError, match=message):
        in_files(tmp_path, CAT, BROKEN).prepare()
    with pytest.raises(InputError, match=r"sentence 0 of split test of .*, token 1,"):
        in_table(tmp_path, BROKEN).prepare()
    labels = in_files(tmp_path, BROKEN, strict=False).dataset("test")[[0]].labels
    assert labels.tolist() == [[0, 2]]  # type: ignore[union-attr]


def test_a_type_that_training_lacks_is_refused_unless_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'B-PP', whose type does not occur in the training"):
        in_files(tmp_path, OTHER).prepare()
    data = in_files(tmp_path, OTHER, chunks=["NP", "VP", "PP"])
    assert data.classes[data.dataset("test")[[0]].labels[0, 0]] == "B-PP"  # type: ignore[index]
    # CoNLL-2000 has I-LST in its test split alone.
    assert "I-VP" in in_files(tmp_path, sentence("a/X/B-VP b/X/I-VP")).classes


@pytest.mark.parametrize(
    ("made", "change", "said"),
    [
        (
            in_table,
            {"word_column": "words", "label_column": "chunk_tags"},
            "no column 'words'; it has tokens, pos_tags, chunk",
        ),
        (in_table, {"label_column": "ner_tags"}, "no column 'ner_tags'"),
        (
            in_table,
            {"pos": True, "pos_column": "upos", "label_column": "pos_tags"},
            "no column 'upos'",
        ),
        (
            in_table,
            {"pos_column": "upos"},
            r"set --data.label_column \(pos_tags or chunk_tags\)",
        ),
        (in_table, {"train": "dev"}, "no split 'dev'"),
        (in_table, {"word_column": "chunk_tags", "label_column": "tokens"}, "no lists of strings"),
        (in_files, {"label_column": 3}, r"train\.txt, line 1, has 3 columns; expected column 3 "),
        (in_files, {"train": "dev.txt"}, r"there is no column file .*dev\.txt"),
        (in_files, {"test": None, "train": "none.txt"}, r"holds no sentence"),
        (in_files, {"validation": "dev", "validation_fraction": 0.1}, "not both"),
        (in_files, {"max_pairs": 0}, "max_pairs is 0"),
        (in_files, {"word_column": "tokens"}, "must all be names, or"),
        (in_files, {"label_column": 0}, "must be different columns"),
        (in_files, {"pos": True, "pos_column": None}, "set pos_column"),
        (in_files, {"target": "sbar"}, "target is 'sbar'; it must be one of"),
    ],
)
def test_wrong_options(tmp_path: Path, made: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(tmp_path, *SENTENCES[:5], **change).prepare()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((["a", "b"], ["X", "X"], ["O"]), "has 2 words; column chunk_tags must have a value"),
        ((["a b"], ["X"], ["O"]), "the word 'a b', which is empty or contains a space"),
        (([""], ["X"], ["O"]), "the word '', which is empty"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, row: Sentence, said: str) -> None:
    with pytest.raises(InputError, match=f"sentence 1 of .*{said}"):
        in_table(tmp_path, CAT, row).prepare()


def test_a_corpus_without_chunks_is_refused(tmp_path: Path) -> None:
    folder = write_columns(tmp_path / "c", train=[SIGN] * 9, test=[SIGN])
    with pytest.raises(InputError, match="every tag is O"):
        corpus(folder, **FILES).prepare()


def test_hub_id_by_default_at_its_parquet_revision_without_numbered_columns() -> None:
    given: Any = {"train": "train", "test": "test", "validation_fraction": 0.1}
    given |= {"word_column": "tokens", "label_column": "chunk_tags"}
    source = ChunkingDataModule(**given).recipe()["sources"]["train"]
    assert source["path"] == "eriktks/conll2000"
    assert source["revision"] == "refs/convert/parquet"
    with pytest.raises(InputError, match="is not a local folder"):
        ChunkingDataModule(word_column=0, label_column=2, train="train.txt").prepare()


def test_the_real_corpus(real: Path) -> None:
    """Counts of Tjong Kim Sang & Buchholz (2000), less the development sentences."""
    data = ChunkingDataModule(local="conll2000", subset={"train": 1000})
    rows = {split: len(data.dataset(split)) for split in SPLITS}
    assert rows == {"train": 1000, "validation": 894, "test": 2012}
    assert int(data.dataset("test").lengths.sum()) == 47_377
    assert len(data.classes) == 23
    labels: Any = [batch.labels[batch.mask] for batch in data.test_dataloader()]  # type: ignore[index]
    assert torch.cat(labels).bincount(minlength=23)[[1, 3, 5, 11, 13, 21]].tolist() == [
        *(438, 866, 9, 12_422, 4_811, 4_658),  # phrases of the test split, as published
    ]


# Three questions about the same sentences: all tags, one tag, and whether there is a chunk.
PLAIN = [HE, DOGS, SIGN]
CLAUSES = [
    sentence("He/PRP/B-NP ran/VBD/B-VP because/IN/B-SBAR dogs/NNS/B-NP ran/VBD/B-VP"),
    sentence("If/IN/B-SBAR dogs/NNS/B-NP ran/VBD/B-VP"),
]
TRAIN, TEST = (PLAIN + CLAUSES) * 8, PLAIN + CLAUSES
SEES: dict[str, Any] = {"suffixes": [2], "case": True, "characters": 8, "pos": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_columns(tmp_path / "c", train=TRAIN, test=TEST)


def of(folder: Path, target: str, **options: Any) -> ChunkingDataModule:
    return corpus(folder, **(FILES | SEES | {"target": target} | options))


def batch_of(data: ChunkingDataModule, split: str = "test") -> Any:
    return data.dataset(split)[list(range(len(data.dataset(split))))]


def test_the_sentences_are_the_same(folder: Path) -> None:
    every, one, whole = (of(folder, name) for name in ("tokens", "marked", "sentence"))
    for key in ("vocab_size", "features"):
        assert every.spec[key] == one.spec[key] == whole.spec[key]
    assert every.tokenizer_json == whole.tokenizer_json
    for split in SPLITS:
        first, second, third = (batch_of(data, split) for data in (every, one, whole))
        for batch in (second, third):
            assert torch.equal(first.index, batch.index)
        assert torch.equal(first.tokens, second.tokens)
        assert torch.equal(first.tokens, third.tokens[:, 1:])
        assert torch.equal(first.mask, third.mask[:, 1:])
        assert (third.tokens[:, 0] == BOS).all()
        assert third.mask[:, 0].all()
        for name, values in first.extras.items():
            assert torch.equal(values, second.extras[name])
            assert torch.equal(values, third.extras[name][:, 1:])
            assert not third.extras[name][:, 0].any()
        assert MARKED not in first.extras


def test_one_tag_of_each_sentence_is_asked_for(folder: Path, tmp_path: Path) -> None:
    every, one = of(folder, "tokens"), of(folder, "marked", mark_seed=3)
    assert one.classes == every.classes
    for split in SPLITS:
        batch, known = batch_of(one, split), batch_of(every, split)
        marks = batch.extras[MARKED].bool()
        assert torch.equal(marks, batch.instances())
        assert torch.equal(batch.labels != IGNORED, marks)
        assert torch.equal(batch.labels[marks], known.labels[marks])
        keys = draw_keys(3, batch.index, torch.zeros_like(batch.index), 1, 1)[:, 0, 0]
        assert marks.int().argmax(-1).tolist() == (keys % batch.mask.sum(-1)).tolist()
        assert (marks.sum(-1) == 1).all()
    assert sum(one.label_counts) == len(one.dataset("train"))
    table = write_parquet(tmp_path / "table", named=False, train=TRAIN, test=TEST)
    other = batch_of(corpus(table, target="marked", mark_seed=3, **SEES))
    assert torch.equal(other.labels, batch_of(one).labels)


def test_a_sentence_has_a_clause_or_not(folder: Path) -> None:
    data = of(folder, "sentence")
    assert data.classes == ["no SBAR", "SBAR"]
    batch = batch_of(data)
    assert batch.labels[:, 0].tolist() == [0, 0, 0, 1, 1]
    assert (batch.labels[:, 1:] == IGNORED).all()
    assert batch.instances().nonzero().tolist() == [[row, 0] for row in range(5)]
    assert not batch.attendable()[:, 0].any()
    assert torch.equal(batch.attendable()[:, 1:], batch.mask[:, 1:])
    assert data.dataset("test").lengths.tolist() == [3, 4, 2, 6, 4]
    assert data.dataset("test").words(1) == ["[BOS]", "Dogs", "ran", "."]
    assert sum(data.label_counts) == len(data.dataset("train"))
    other = of(folder, "sentence", sentence_chunk="NP")
    assert other.classes == ["no NP", "NP"]
    assert batch_of(other).labels[:, 0].tolist() == [1, 1, 0, 1, 1]


def test_a_split_without_such_a_chunk_is_refused(tmp_path: Path) -> None:
    folder = write_columns(tmp_path / "c", train=TRAIN, test=PLAIN, all=CLAUSES)
    for options, message in (
        ({}, "the test split of .* no sentence with a chunk of type SB"),
        ({"test": "all.txt"}, "no sentence without a chunk of type SBAR"),
        ({"sentence_chunk": "PP"}, "the train split of .* with a chunk of type PP"),
    ):
        with pytest.raises(InputError, match=message):
            of(folder, "sentence", **options).prepare()
    of(folder, "marked").prepare()
