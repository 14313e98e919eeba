"""Three questions about the same sentences: all tags, one tag, and whether there is a chunk."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.batch import BOS, MARKED
from attnlight.data.targets import IGNORED
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.functional import draw_keys
from tests.datamodules.test_chunking import FILES, Sentence, corpus, write_columns, write_parquet

PLAIN: list[Sentence] = [
    (["He", "ran"], ["PRP", "VBD"], ["B-NP", "B-VP"]),
    (["Dogs", "ran", "."], ["NNS", "VBD", "."], ["B-NP", "B-VP", "O"]),
    (["!"], ["."], ["O"]),
]
CLAUSES: list[Sentence] = [
    (
        ["He", "ran", "because", "dogs", "ran"],
        ["PRP", "VBD", "IN", "NNS", "VBD"],
        ["B-NP", "B-VP", "B-SBAR", "B-NP", "B-VP"],
    ),
    (["If", "dogs", "ran"], ["IN", "NNS", "VBD"], ["B-SBAR", "B-NP", "B-VP"]),
]
TRAIN, TEST = (PLAIN + CLAUSES) * 8, PLAIN + CLAUSES
SEES: dict[str, Any] = {"suffixes": [2], "case": True, "characters": 8, "pos": True}


@pytest.fixture(autouse=True)
def _no_local_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)


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
    for split in ("train", "validation", "test"):
        first, second, third = (batch_of(data, split) for data in (every, one, whole))
        for batch in (second, third):
            assert torch.equal(first.index, batch.index)
        assert torch.equal(first.tokens, second.tokens)
        assert torch.equal(first.tokens, third.tokens[:, 1:])
        assert (third.tokens[:, 0] == BOS).all()
        for name, values in first.extras.items():
            assert torch.equal(values, second.extras[name])
            assert torch.equal(values, third.extras[name][:, 1:])
            assert not third.extras[name][:, 0].any()
        assert MARKED not in first.extras


def test_one_tag_of_each_sentence_is_asked_for(folder: Path) -> None:
    every, one = of(folder, "tokens"), of(folder, "marked", mark_seed=3)
    assert one.classes == every.classes
    for split in ("train", "validation", "test"):
        batch, known = batch_of(one, split), batch_of(every, split)
        marks = batch.extras[MARKED].bool()
        assert (marks.sum(-1) == 1).all()
        assert torch.equal(marks, batch.instances())
        assert torch.equal(batch.labels != IGNORED, marks)
        assert torch.equal(batch.labels[marks], known.labels[marks])
        keys = draw_keys(3, batch.index, torch.zeros_like(batch.index), 1, 1)[:, 0, 0]
        assert marks.int().argmax(-1).tolist() == (keys % batch.mask.sum(-1)).tolist()
    assert sum(one.label_counts) == len(one.dataset("train"))


def test_marks_are_uniform_and_a_function_of_seed_and_row(tmp_path: Path) -> None:
    long: Sentence = (["cat"] * 5, ["NN"] * 5, ["B-NP"] * 5)
    folder = write_columns(tmp_path / "c", train=[long] * 1000, test=[long])
    batch = batch_of(of(folder, "marked", validation_fraction=0.001), "train")
    places = Counter(batch.extras[MARKED].argmax(-1).tolist())
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert all(abs(count - 200) < 5 * 13 for count in places.values())  # 13: its deviation
    less = batch_of(of(folder, "marked", validation_fraction=0.5), "train")
    shared = torch.isin(batch.index, less.index)
    assert torch.equal(batch.extras[MARKED][shared], less.extras[MARKED])
    other = batch_of(of(folder, "marked", validation_fraction=0.001, mark_seed=1), "train")
    assert not torch.equal(other.extras[MARKED], batch.extras[MARKED])


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


def test_both_kinds_of_source_give_the_same(tmp_path: Path) -> None:
    splits = {"train": TRAIN, "test": TEST}
    one = of(write_columns(tmp_path / "columns", **splits), "marked")
    table = write_parquet(tmp_path / "table", named=False, **splits)
    two = corpus(table, target="marked", **SEES)
    assert torch.equal(batch_of(one).labels, batch_of(two).labels)
    assert torch.equal(batch_of(one).extras[MARKED], batch_of(two).extras[MARKED])


def test_each_target_is_a_corpus_of_its_own(folder: Path) -> None:
    plain = corpus(folder, **FILES)
    assert "target" not in plain.recipe()  # corpora prepared before there were targets stay
    assert corpus(folder, **FILES, target="tokens", mark_seed=5).fingerprint == plain.fingerprint
    asked: list[dict[str, Any]] = [
        {"target": "tokens"},
        {"target": "marked"},
        {"target": "marked", "mark_seed": 1},
        {"target": "sentence"},
        {"target": "sentence", "sentence_chunk": "NP"},
    ]
    prints = {corpus(folder, **FILES, **options).fingerprint for options in asked}
    assert len(prints) == len(asked)


def test_a_split_without_such_a_chunk_is_refused(tmp_path: Path) -> None:
    folder = write_columns(tmp_path / "c", train=TRAIN, test=PLAIN, all=CLAUSES)
    with pytest.raises(
        InputError, match=r"the test split of .* no sentence with a chunk of type SB"
    ):
        of(folder, "sentence").prepare()
    with pytest.raises(InputError, match="no sentence without a chunk of type SBAR"):
        of(folder, "sentence", test="all.txt").prepare()
    with pytest.raises(InputError, match=r"the train split of .* with a chunk of type PP"):
        of(folder, "sentence", sentence_chunk="PP").prepare()
    of(folder, "marked").prepare()


def test_an_unknown_target_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="target is 'sbar'; it must be one of"):
        of(folder, "sbar")


def test_the_real_corpus(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    shared: dict[str, Any] = {"local": "conll2000", "subset": {"train": 500}}
    data = ChunkingDataModule(target="sentence", **shared)
    labels = batch_of(data).labels
    kept = labels[labels != IGNORED]
    # Of the 535 clauses of the test split, as published, some stand in one sentence.
    assert len(kept) == 2012
    assert 400 < int(kept.sum()) < 535
    marked = batch_of(ChunkingDataModule(target="marked", **shared))
    assert int(marked.extras[MARKED].sum()) == 2012
