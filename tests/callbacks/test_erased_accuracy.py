"""Accuracy without random words against a loop over texts, and words that a corpus gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.batch import TextBatch
from attnlight.callbacks import ErasedAccuracy, Faithfulness
from attnlight.data.dataset import TokenDataset
from attnlight.errors import InputError
from attnlight.functional import random_rankings
from attnlight.records import read_record
from tests.api.test_run import planted_rows
from tests.attribution.scenes import TOKENS, scene
from tests.bases import Planted, one_text, save_base, trainer
from tests.callbacks.faithfulness_loops import reduced
from tests.callbacks.test_base import run_test
from tests.callbacks.token_loops import columns_of
from tests.data.test_word_sampler import Counted, word_sampler

PERCENTS, DRAWS = (10, 50, 90), 2


def labelled(name: str) -> tuple[Any, TextBatch]:
    model, batch = scene(name)
    batch.labels = batch.index % 2
    if name in TOKENS:
        batch.labels = (batch.tokens + batch.index[:, None]) % 3
        batch.labels[0, 1] = -100
    return model, batch


@pytest.mark.parametrize("replacement", ["delete", "unk", "resample"])
@pytest.mark.parametrize("kind", ["bilstm", "han", "affine pair", "heads"])
def test_equals_a_loop_over_texts_and_draws(kind: str, replacement: Any) -> None:
    model, batch = labelled(kind)
    shares = [percent / 100 for percent in PERCENTS]
    test = ErasedAccuracy(shares, replacement, DRAWS, resamples=3, seed=6)
    test.word_sampler = word_sampler() if replacement == "resample" else None
    found, number, changed, own = columns_of(test, model, batch), 0, 0, kind in TOKENS
    for place in range(len(batch)):
        single = one_text(batch, place)
        tokens: Any = [None]
        if replacement == "resample":
            tokens = word_sampler().draw(single, 3, seed=6)

        @cache
        @torch.no_grad()
        def without(gone: tuple[int, ...]) -> list[Any]:
            each = (reduced(single, gone, replacement, drawn) for drawn in tokens)  # noqa: B023
            return [model(text) for text in each]

        output = without(())[0]
        for row, (_, position) in enumerate(output.rows.tolist()):
            assert single.labels is not None
            label = int(single.labels[0, position] if own else single.labels[0])
            items = output.mask[row : row + 1].clone()
            items[0, position] &= not own
            size = int(items.sum())
            orders = random_rankings(items, output.rows[row : row + 1], DRAWS, 6)[0]
            for percent in (0, *PERCENTS):
                right = []
                for order in orders:
                    count = max(0, min(size - 1, size * percent // 100))
                    gone = tuple(sorted(order[:count].tolist()))
                    for again in without(gone):
                        before = sum(item < position for item in gone) * (replacement == "delete")
                        (same,) = (again.rows[:, 1] == position - before).nonzero()
                        right.append(float(again.logits[same[0]].argmax() == label))
                expected = sum(right) / len(right) if label >= 0 else np.nan
                name = f"correct_{percent}" if percent else "correct"
                assert float(found[name][number]) == pytest.approx(expected, nan_ok=True), name
                changed += expected != float(found["correct"][number])
            number += 1
    assert number == len(found["correct"])
    assert changed > 1 or (kind, replacement) == ("affine pair", "unk")
    assert bool(found["correct"].isnan().any()) == own


def test_without_labels_nothing_is_correct() -> None:
    model, batch = scene("bilstm")
    found = columns_of(ErasedAccuracy(), model, batch)
    assert all(found[name].isnan().all() for name in ErasedAccuracy().measures)


RESAMPLED: list[Any] = [
    Faithfulness(["attention", {"name": "occlusion", "replacement": "resample", "resamples": 2}], replacement="resample", resamples=2, draws=2),
    ErasedAccuracy(replacement="resample", resamples=2),
]  # fmt: skip


def test_a_corpus_gives_its_training_words_and_texts_their_own(tmp_path: Path) -> None:
    checkpoint = save_base(tmp_path / "best.ckpt", Planted())
    task, data, rows = planted_rows(checkpoint)
    drawn: list[int] = []

    def counted(texts: TokenDataset, size: int) -> Any:
        drawn.append(len(texts))
        return Counted({4: 1, 5: 2}).token_counts(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.data.dataset.TokenDataset.token_counts", counted)
        trainer(tmp_path, *RESAMPLED).test(task, data, verbose=False)
    assert drawn == [61]  # the training split, once for all tests
    for name in ("faithfulness", "erased_accuracy"):
        record = read_record(tmp_path / f"records/test/{name}.parquet")
        assert record.metadata["settings"]["replacement"] == "resample"
    results = attnlight.run(checkpoint, rows, [*RESAMPLED])
    found = results.table("erased_accuracy")
    assert len(found) == 23
    assert found["correct_50"].between(0, 1).all()


def test_resampling_without_words_is_refused_in_a_sentence(tmp_path: Path) -> None:
    checkpoint = save_base(tmp_path / "best.ckpt", Planted())
    word = planted_rows(checkpoint)[2][0][0].split()[0]
    with pytest.raises(InputError, match="needs a corpus or texts, whose words"):
        run_test(tmp_path, RESAMPLED[1])
    with pytest.raises(InputError, match="at least two different words"):
        attnlight.run(checkpoint, [f"{word} {word}"], [RESAMPLED[1]])
    method = {"name": "occlusion", "replacement": "resample"}
    with pytest.raises(InputError, match="resample is for tests, which know its words"):
        attnlight.explain(checkpoint, word, methods=[method])
