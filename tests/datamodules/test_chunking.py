"""CoNLL-2000 and other corpora of BIO tags: three sources, features, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from attnlight.data.dataset import TokenDataset
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError

SENTENCES = [
    (["The", "cat", "sat"], ["DT", "NN", "VBD"], ["B-NP", "I-NP", "B-VP"]),
    (["Dogs", "ran", "."], ["NNS", "VBD", "."], ["B-NP", "B-VP", "O"]),
    (["!"], ["."], ["O"]),
    (
        ["A", "cat", "ran", "home", "."],
        ["DT", "NN", "VBD", "RB", "."],
        ["B-NP", "I-NP", "B-VP", "O", "O"],
    ),
    (["He", "ran"], ["PRP", "VBD"], ["B-NP", "B-VP"]),
] * 4
NAMES = ["O", "B-NP", "I-NP", "B-VP", "I-VP", "B-LST"]
Sentence = tuple[Sequence[str], Sequence[str], Sequence[str]]


@pytest.fixture(autouse=True)
def _no_local_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


def write_parquet(folder: Path, named: bool = True, **splits: Sequence[Sentence]) -> Path:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split, sentences in splits.items():
        columns = dict(
            zip(
                ("tokens", "pos_tags", "chunk_tags"),
                map(list, zip(*sentences, strict=True)),
                strict=True,
            )
        )
        tags = datasets.Value("string")
        if named:
            columns["chunk_tags"] = [[NAMES.index(t) for t in row] for row in columns["chunk_tags"]]
            tags = datasets.ClassLabel(names=NAMES)
        features = {name: datasets.List(datasets.Value("string")) for name in columns}
        features["chunk_tags"] = datasets.List(tags)
        rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        rows.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    return folder


def write_columns(folder: Path, **splits: Sequence[Sentence]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, sentences in splits.items():
        blocks = ("\n".join(map(" ".join, zip(*sentence, strict=True))) for sentence in sentences)
        (folder / f"{split}.txt").write_text("\n\n".join(blocks) + "\n\n")
    return folder


FILES: dict[str, Any] = {
    "word_column": 0,
    "pos_column": 1,
    "label_column": 2,
    "train": "train.txt",
    "test": "test.txt",
}


def corpus(folder: Path, **options: Any) -> ChunkingDataModule:
    return ChunkingDataModule(str(folder), cache_dir=str(folder.parent / "cache"), **options)


def both(tmp_path: Path, **options: Any) -> list[ChunkingDataModule]:
    """The same sentences as parquet and as column files."""
    splits = {"train": SENTENCES, "test": SENTENCES[:5]}
    return [
        corpus(write_parquet(tmp_path / "parquet", named=False, **splits), **options),
        corpus(write_columns(tmp_path / "columns", **splits), **FILES, **options),
    ]


def test_parquet_and_column_files_give_the_same_batches(tmp_path: Path) -> None:
    options = {"suffixes": [2], "case": True, "characters": 8, "pos": True}
    first, second = both(tmp_path, **options)
    assert first.classes == second.classes == ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    assert first.tokenizer_json == second.tokenizer_json
    assert first.spec["features"] == second.spec["features"]
    for split in ("train", "validation", "test"):
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
            assert (values[~one_batch.mask] == 0).all()
            assert (values[one_batch.mask] != 0).all()


def test_a_batch_says_what_its_source_says(tmp_path: Path) -> None:
    data = both(tmp_path)[0]
    dataset = data.dataset("test")
    batch = dataset[[3, 2]]
    assert batch.index.tolist() == [3, 2]
    assert batch.mask.tolist() == [[True] * 5, [True] + [False] * 4]
    assert batch.labels is not None
    tags = [data.classes[n] for n in batch.labels[0].tolist()]
    assert tags == ["B-NP", "I-NP", "B-VP", "O", "O"]
    assert batch.labels[1].tolist() == [0, -100, -100, -100, -100]
    assert dataset.words(3) == ["A", "cat", "ran", "home", "."]
    assert batch.extras == {}
    assert not batch.attendable()[1, 1:].any()


def test_a_tenth_of_training_is_split_off_by_a_seed(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "c", train=SENTENCES, test=SENTENCES[:5])
    splits = [corpus(folder, split_seed=seed).dataset("validation").index for seed in (0, 0, 1, 2)]
    assert len(splits[0]) == 2
    assert splits[0].tolist() == splits[1].tolist()
    assert len({tuple(split) for split in splits}) > 1
    train = corpus(folder).dataset("train").index
    assert sorted([*train, *splits[0]]) == list(range(20))
    assert len(corpus(folder, validation_fraction=0.5).dataset("validation")) == 10


def test_the_vocabulary_is_of_training_alone(tmp_path: Path) -> None:
    unseen = [(["Zebras", "ran"], ["NNS", "XX"], ["B-NP", "B-VP"])]
    folder = write_parquet(tmp_path / "c", train=SENTENCES, validation=unseen, test=unseen)
    data = corpus(folder, validation="validation", pos=True, suffixes=[3])
    batch = data.dataset("test")[[0]]
    assert batch.tokens[0, 0] == 1
    assert batch.tokens[0, 1] > 3
    assert batch.extras["pos"][0].tolist()[1] == 1
    assert batch.extras["suffix_3"][0].tolist()[0] == 1


def test_names_of_the_source_are_the_classes(tmp_path: Path) -> None:
    data = corpus(write_parquet(tmp_path / "c", train=SENTENCES, test=SENTENCES[:5]))
    assert data.classes == NAMES
    assert len(data.classes) == 6
    counts = dict(zip(NAMES, data.label_counts, strict=True))
    assert counts["B-LST"] == 0
    assert sum(counts.values()) == data.dataset("train").lengths.sum()


def test_empty_rows_are_dropped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty: Sentence = ([], [], [])
    folder = write_parquet(tmp_path / "c", train=[*SENTENCES, empty], test=[*SENTENCES[:5], empty])
    data = corpus(folder)
    data.prepare()
    assert "test 5 (1 dropped; " in capsys.readouterr().err
    assert data._corpus["splits"]["train"]["dropped_by"] == {"empty": 1}
    assert data.dataset("test").index.tolist() == [0, 1, 2, 3, 4]
    assert len(data.dataset("train")) + len(data.dataset("validation")) == 20


def test_one_token_and_five_hundred(tmp_path: Path) -> None:
    long: Sentence = (["cat"] * 500, ["NN"] * 500, ["B-NP"] + ["I-NP"] * 499)
    folder = write_columns(tmp_path / "c", train=[*SENTENCES, long], test=[SENTENCES[2], long])
    data = corpus(folder, **FILES, max_pairs=100)
    batches = list(data.test_dataloader())
    assert sorted(tuple(batch.tokens.shape) for batch in batches) == [(1, 1), (1, 500)]


def test_batches_hold_no_more_pairs_than_asked(tmp_path: Path) -> None:
    data = both(tmp_path, max_pairs=27, eval_batch_size=8)[0]
    batches = list(data.test_dataloader())
    assert sorted(int(i) for batch in batches for i in batch.index) == [0, 1, 2, 3, 4]
    assert all(len(b) == 1 or len(b) * b.tokens.shape[1] ** 2 <= 27 for b in batches)
    assert len(batches) == len(data.test_dataloader())


BROKEN = [(["a", "b"], ["X", "X"], ["O", "I-NP"]), *SENTENCES]


def test_an_inside_without_begin_is_named_by_file_and_line(tmp_path: Path) -> None:
    folder = write_columns(tmp_path / "c", train=SENTENCES, test=[SENTENCES[0], *BROKEN])
    with pytest.raises(
        InputError, match=r"from line 5 of .*test\.txt, token 1, has the tag 'I-NP'"
    ):
        corpus(folder, **FILES).prepare()
    data = corpus(folder, **FILES, strict=False)
    assert data.dataset("test")[[1]].labels[0].tolist() == [0, 2]  # type: ignore[index]


def test_an_inside_without_begin_is_named_by_sentence(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "c", train=SENTENCES, test=BROKEN)
    with pytest.raises(InputError, match=r"sentence 0 of split test of .*, token 1,"):
        corpus(folder).prepare()


def test_a_type_that_training_lacks_is_refused_unless_listed(tmp_path: Path) -> None:
    other: Sentence = (["Of"], ["IN"], ["B-PP"])
    folder = write_columns(tmp_path / "c", train=SENTENCES, test=[other])
    with pytest.raises(InputError, match="'B-PP', whose type does not occur in the training"):
        corpus(folder, **FILES).prepare()
    data = corpus(folder, **FILES, chunks=["NP", "VP", "PP"])
    assert data.classes[data.dataset("test")[[0]].labels[0, 0]] == "B-PP"  # type: ignore[index]


def test_an_inside_that_training_lacks_is_a_class(tmp_path: Path) -> None:
    """CoNLL-2000 has I-LST in its test split alone."""
    other: Sentence = (["a", "b"], ["X", "X"], ["B-VP", "I-VP"])
    folder = write_columns(tmp_path / "c", train=SENTENCES, test=[other])
    assert "I-VP" in corpus(folder, **FILES).classes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"word_column": "words"}, "no column 'words'; it has tokens, pos_tags, chunk_tags"),
        ({"label_column": "ner_tags"}, "no column 'ner_tags'"),
        ({"pos": True, "pos_column": "upos"}, "no column 'upos'"),
        ({"train": "dev"}, "no split 'dev'"),
        ({"word_column": "chunk_tags", "label_column": "tokens"}, "no lists of strings"),
    ],
)
def test_missing_columns_of_a_table(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = write_parquet(tmp_path / "c", train=SENTENCES, test=SENTENCES[:5])
    with pytest.raises(InputError, match=said):
        corpus(folder, **change).prepare()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label_column": 3}, r"train\.txt, line 1, has 3 columns; expected column 3 "),
        ({"train": "dev.txt"}, r"there is no column file .*dev\.txt"),
        ({"test": None, "train": "none.txt"}, r"holds no sentence"),
        ({"label_column": 1}, "token 0, cannot be read: tag 'DT' is not of the BIO scheme"),
    ],
)
def test_missing_columns_of_a_file(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = write_columns(tmp_path / "c", train=SENTENCES, test=SENTENCES[:5], none=[])
    with pytest.raises(InputError, match=said):
        corpus(folder, **(FILES | change)).prepare()


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ((["a", "b"], ["X", "X"], ["O"]), "has 2 words; column chunk_tags must have a value"),
        ((["a b"], ["X"], ["O"]), "the word 'a b', which is empty or contains a space"),
        (([""], ["X"], ["O"]), "the word '', which is empty"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, sentence: Sentence, said: str) -> None:
    folder = write_parquet(tmp_path / "c", train=SENTENCES, test=[SENTENCES[0], sentence])
    with pytest.raises(InputError, match=f"sentence 1 of .*{said}"):
        corpus(folder).prepare()


def test_a_corpus_without_chunks_is_refused(tmp_path: Path) -> None:
    folder = write_columns(tmp_path / "c", train=[SENTENCES[2]] * 9, test=[SENTENCES[2]])
    with pytest.raises(InputError, match="every tag is O"):
        corpus(folder, **FILES).prepare()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"validation": "dev", "validation_fraction": 0.1}, "not both"),
        ({"validation_fraction": 0.0}, "must lie between 0 and 1"),
        ({"max_pairs": 0}, "max_pairs is 0"),
        ({"word_column": 0}, "must all be names, or"),
        ({"label_column": "tokens"}, "must be different columns"),
        ({"pos": True, "pos_column": None}, "set pos_column"),
        ({"subset": {"dev": 3}}, "subset names dev"),
        ({"characters": 3}, "characters is 3"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_options_that_do_not_go(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ChunkingDataModule(**options)


def test_numbered_columns_need_a_folder() -> None:
    with pytest.raises(InputError, match="is not a local folder"):
        ChunkingDataModule(word_column=0, label_column=2).prepare()


def test_hub_id_by_default_at_its_parquet_revision() -> None:
    source = ChunkingDataModule(validation_fraction=0.1).recipe()["sources"]["train"]
    assert source["path"] == "eriktks/conll2000"
    assert source["revision"] == "refs/convert/parquet"


def test_a_worker_opens_the_split_itself(tmp_path: Path) -> None:
    dataset = both(tmp_path)[0].dataset("test")
    kind, arguments = dataset.__reduce__()
    assert kind is TokenDataset
    assert torch.equal(kind(*arguments)[[0]].labels, dataset[[0]].labels)


def test_the_real_corpus(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of Tjong Kim Sang & Buchholz (2000), less the development sentences."""
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    data = ChunkingDataModule(local="conll2000", subset={"train": 1000})
    rows = {split: len(data.dataset(split)) for split in ("train", "validation", "test")}
    assert rows == {"train": 1000, "validation": 894, "test": 2012}
    assert int(data.dataset("test").lengths.sum()) == 47_377
    assert len(data.classes) == 23
    labels = [batch.labels[batch.mask] for batch in data.test_dataloader()]
    assert torch.cat(labels).bincount(minlength=23)[[1, 3, 5, 11, 13, 21]].tolist() == [
        *(438, 866, 9, 12_422, 4_811, 4_658),  # phrases of the test split, as published
    ]
