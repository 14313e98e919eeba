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
from tests.datamodules.test_chunking import (
    FILES,
    SPLITS,
    Sentence,
    corpus,
    write_columns,
    write_parquet,
)

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
        assert (third.tokens[:, 0] == BOS).all()
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


def test_marks_are_uniform_and_a_function_of_seed_and_row(tmp_path: Path) -> None:
    long: Sentence = (["cat"] * 5, ["NN"] * 5, ["B-NP"] * 5)
    folder = write_columns(tmp_path / "c", train=[long] * 1000, test=[long])

    def train(fraction: float, **options: Any) -> Any:
        data = corpus(folder, **FILES, target="marked", validation_fraction=fraction, **options)
        return batch_of(data, "train")

    batch, less = train(0.001), train(0.5)
    places = Counter(batch.extras[MARKED].argmax(-1).tolist())
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert all(abs(count - 200) < 5 * 13 for count in places.values())  # 13: its deviation
    shared = torch.isin(batch.index, less.index)
    assert torch.equal(batch.extras[MARKED][shared], less.extras[MARKED])
    assert not torch.equal(train(0.001, mark_seed=1).extras[MARKED], batch.extras[MARKED])


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


def test_each_target_is_a_corpus_of_its_own(folder: Path) -> None:
    plain = corpus(folder, **FILES)
    assert "target" not in plain.recipe()
    assert corpus(folder, **FILES, mark_seed=5).fingerprint == plain.fingerprint
    asked: list[dict[str, Any]] = [
        *({}, {"target": "marked"}, {"target": "marked", "mark_seed": 1}),
        *({"target": "sentence"}, {"target": "sentence", "sentence_chunk": "NP"}),
    ]
    prints = {corpus(folder, **FILES, **options).fingerprint for options in asked}
    assert len(prints) == len(asked)


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


def test_the_real_corpus(real: Path) -> None:
    shared: dict[str, Any] = {"local": "conll2000", "subset": {"train": 500}}
    labels = batch_of(ChunkingDataModule(target="sentence", **shared)).labels
    kept = labels[labels != IGNORED]
    # Of the 535 clauses of the test split, as published, some stand in one sentence.
    assert len(kept) == 2012
    assert 400 < int(kept.sum()) < 535
    marked = batch_of(ChunkingDataModule(target="marked", **shared))
    assert int(marked.extras[MARKED].sum()) == 2012
