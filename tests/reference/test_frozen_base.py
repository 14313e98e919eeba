"""A base is evaluated once for each split of its own corpus, and refused for any other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.errors import InputError
from attnlight.problems.classification import Classification
from attnlight.reference import FrozenBase, frozen_base, read_base, running_split
from tests.bases import Planted, batch_of, save_base


@pytest.fixture
def corpus(tmp_path: Path) -> Planted:
    return Planted(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were evaluated."""
    seen: list[str] = []

    def write(*arguments: Any, split: str, **description: Any) -> None:
        seen.append(split)
        original(*arguments, split=split, **description)

    original = frozen_base.write_outputs
    monkeypatch.setattr(frozen_base, "write_outputs", write)
    return seen


def test_each_split_is_evaluated_once(tmp_path: Path, corpus: Planted, written: list[str]) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    for _ in range(2):
        reference = FrozenBase(path)
        for split in ("train", "test", "train"):
            store = reference.outputs(corpus, split)
            assert store.rows == len(corpus.dataset(split))
    assert written == ["train", "test"]
    assert FrozenBase(save_base(tmp_path / "b.ckpt", corpus, seed=1)).outputs(corpus, "test")
    assert written == ["train", "test", "test"]


def test_splits_are_kept_apart(tmp_path: Path, corpus: Planted) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    model, reference = read_base(path).model, FrozenBase(path)
    for split in ("train", "validation", "test"):
        batch = batch_of(corpus, split)
        rows, mask = Classification.instances(batch)
        weights, _ = reference.outputs(corpus, split).read(rows, mask)
        torch.testing.assert_close(weights, model(batch).weights, atol=2e-6, rtol=0)


def test_outputs_outlive_the_checkpoint(
    tmp_path: Path, corpus: Planted, written: list[str]
) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    first = FrozenBase(path)
    first.outputs(corpus, "test")
    path.unlink()
    later = FrozenBase(path, first.identity)
    assert later.outputs(corpus, "test").rows == 23
    with pytest.raises(InputError, match="there is no checkpoint"):
        later.outputs(corpus, "validation")


def test_a_checkpoint_that_was_replaced_is_refused(tmp_path: Path, corpus: Planted) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    reference = FrozenBase(path)
    save_base(path, corpus, seed=1)
    with pytest.raises(InputError, match="has been replaced"):
        reference.outputs(corpus, "test")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vocabulary": 500}, "a vocabulary other than"),
        ({"corpus_seed": 1}, "another corpus or on other splits"),
        ({"test_size": 24}, "another corpus or on other splits"),
    ],
)
def test_another_corpus_is_refused(
    tmp_path: Path, corpus: Planted, options: dict[str, int], sentence: str
) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    with pytest.raises(InputError, match=sentence) as error:
        FrozenBase(path).outputs(Planted(**options), "train")
    assert str(path) in str(error.value)


def test_a_corpus_is_needed(tmp_path: Path, corpus: Planted) -> None:
    reference = FrozenBase(save_base(tmp_path / "a.ckpt", corpus))
    with pytest.raises(InputError, match="needs its corpus"):
        reference.require_corpus(None)


@pytest.mark.parametrize(
    ("stage", "split"),
    [
        ("training", "train"),
        ("validating", "validation"),
        ("sanity_checking", "validation"),
        ("testing", "test"),
        ("predicting", "validation"),
    ],
)
def test_running_split(stage: str, split: str) -> None:
    stages = ("training", "validating", "sanity_checking", "testing", "predicting")
    trainer: Any = SimpleNamespace(**{name: name == stage for name in stages})
    trainer.datamodule = SimpleNamespace(predict_split="validation")
    assert running_split(trainer) == split


def test_attended_items_are_words_or_sentences() -> None:
    flat, nested = (batch_of(Planted(in_sentences=nested)) for nested in (False, True))
    rows, words = Classification.instances(flat)
    assert rows.tolist() == [[index, 0] for index in flat.index.tolist()]
    assert torch.equal(words, flat.mask)
    _, sentences = Classification.instances(nested)
    assert np.array_equal(sentences.sum(-1), -(-words.sum(-1) // 4))
