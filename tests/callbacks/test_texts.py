"""The record of texts: what it shares with the file of predictions, and scores by brute force."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from attnlight.callbacks import Texts
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.callbacks.hooks.text_columns import TextColumns
from attnlight.errors import InputError
from attnlight.records import read_record
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of
from tests.callbacks.test_base import trainer
from tests.functional.adversaries import jensen_shannon

Vector = NDArray[np.float64]
SHARED = ("tokens", "items", "label", "probabilities", "attention", "evidence")


def rows_of(path: Path) -> list[dict[str, object]]:
    columns = read_record(path).columns
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Record of texts and file of predictions of one model of sentences, in other batches."""
    folder = tmp_path_factory.mktemp("run")
    pl.seed_everything(0)
    data = corpus()
    task = task_of(data)
    trainer(folder, Texts()).test(task, datamodule=data, verbose=False)
    writing = trainer(folder, PredictionWriter())  # type: ignore[arg-type]
    writing.predict(task, corpus(batch_size=7), return_predictions=False)
    return folder / "records/test/texts.parquet", folder / "predictions.parquet"


def pairs(written: tuple[Path, Path]) -> Iterator[tuple[dict, dict]]:  # type: ignore[type-arg]
    texts, predictions = map(rows_of, written)
    assert len(texts) == len(predictions) == 41
    yield from zip(texts, predictions, strict=True)


def of(weights: Vector, items: Vector) -> Any:
    return softmax(weights @ items)


def test_texts_are_those_of_the_file_of_predictions(written: tuple[Path, Path]) -> None:
    for text, predicted in pairs(written):
        assert list(text["tokens"]) == list(predicted["tokens"])
        for name in SHARED[1:]:
            found, expected = (
                np.concatenate([np.ravel(part).astype(float) for part in np.atleast_1d(row[name])])
                for row in (text, predicted)
            )
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_by_brute_force(written: tuple[Path, Path]) -> None:
    flipped, random = 0, np.random.default_rng(0)
    for text, predicted in pairs(written):
        weights = np.array(predicted["attention"][0], dtype=np.float64)
        items = np.stack([np.array(z, dtype=np.float64) for z in predicted["item_logits"][0]])
        bias, original = np.asarray(predicted["bias"], dtype=np.float64), of(weights, items)
        n = len(weights)
        without = [
            of(np.delete(weights, i) / np.delete(weights, i).sum(), np.delete(items, i, 0))
            if n > 1
            else softmax(bias)
            for i in range(n)
        ]
        loo = [np.abs(other - original).sum() / 2 for other in without]
        np.testing.assert_allclose(text["scores_loo"], loo, atol=1e-5)

        sizes = []
        for size in range(1, n + 1):
            for erased in combinations(range(n), size):
                kept = [i for i in range(n) if i not in erased]
                left = weights[kept]
                logits = left / left.sum() @ items[kept] if kept else bias
                if logits.argmax() != original.argmax():
                    sizes.append(size)
        members = np.asarray(text["scores_minimal"])
        if sizes:
            flipped += 1
            assert members.sum() == min(sizes)
            kept = members == 0
            logits = weights[kept] / weights[kept].sum() @ items[kept] if kept.any() else bias
            assert logits.argmax() != original.argmax()
        else:
            assert np.isnan(members).all()

        worst = np.asarray(text["scores_worst_case"])
        assert worst.sum() == pytest.approx(1)
        assert np.abs(of(worst, items) - original).sum() / 2 <= 0.01 * (1 + 1e-4)

        def js(attention: Vector) -> float:
            return float(jensen_shannon(*map(torch.as_tensor, (weights, attention))))  # noqa: B023

        for candidate in random.dirichlet(np.full(n, 0.3), 200):
            if np.abs(of(candidate, items) - original).sum() / 2 <= 0.01:
                assert js(candidate) <= js(worst) + 1e-6
    assert flipped > 0


def test_a_data_set_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="list does not give the words of its texts"):
        TextColumns([])
