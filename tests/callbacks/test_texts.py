"""The record of texts: what it shares with the file of predictions, and scores by brute force."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import Texts
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.callbacks.hooks.text_columns import TextColumns
from attnlight.errors import InputError
from attnlight.records import read_record
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of
from tests.callbacks.test_base import trainer
from tests.functional.adversaries import jensen_shannon

Vector = NDArray[np.float64]
SHARED = (
    "tokens",
    "items",
    "label",
    "probabilities",
    "attention",
    "item_logits",
    "bias",
    "evidence",
)


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


def numbers(value: Any) -> Vector:
    """All numbers of nested lists, in order."""
    parts = [numbers(part) for part in value] if np.ndim(value) else [np.array([value], float)]
    return np.concatenate(parts)


def test_texts_are_those_of_the_file_of_predictions(written: tuple[Path, Path]) -> None:
    for text, predicted in pairs(written):
        assert list(text["tokens"]) == list(predicted["tokens"])
        for name in SHARED[1:]:
            found, expected = (numbers(row[name]) for row in (text, predicted))
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


class Opaque(torch.nn.Module):
    """A network without its item logits."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def embed(self, batch: TextBatch) -> torch.Tensor:
        return self.network.embed(batch)  # type: ignore[no-any-return, operator]

    def readout(self, output: AttentionOutput, weights: torch.Tensor) -> torch.Tensor:
        return self.network.readout(output, weights)  # type: ignore[no-any-return, operator]

    def forward(self, *given: Any, **named: Any) -> AttentionOutput:
        return replace(self.network(*given, **named), item_logits=None)


def test_candidates_of_a_readout_that_is_not_affine(
    tmp_path: Path, written: tuple[Path, Path]
) -> None:
    data = corpus()
    task = task_of(data)
    task.model = Opaque(task.model)  # type: ignore[assignment]
    trainer(tmp_path, Texts(leave_one_out=False, methods=[])).test(
        task, datamodule=data, verbose=False
    )
    rows = rows_of(tmp_path / "records/test/texts.parquet")
    for row, (_, exact) in zip(rows, pairs(written), strict=True):
        assert row["item_logits"] is None
        items = np.stack([np.array(z, dtype=np.float64) for z in exact["item_logits"][0]])
        attentions = [np.array(each, dtype=np.float64) for each in row["candidates"]]
        own = np.array(exact["attention"][0])
        for each, predicted in zip(
            attentions, np.reshape(row["candidate_probabilities"], (3, 2)), strict=True
        ):
            np.testing.assert_allclose(softmax(each @ items), predicted, atol=1e-6)
        np.testing.assert_allclose(attentions[0], row["scores_worst_case"], atol=1e-6)
        np.testing.assert_allclose(attentions[1], 1 / len(items), atol=1e-6)
        np.testing.assert_allclose(sorted(attentions[2]), sorted(own), atol=1e-6)
