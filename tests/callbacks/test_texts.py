"""The record of texts: what it shares with the file of predictions, and scores by brute force."""

from collections.abc import Iterator
from dataclasses import replace
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
from attnlight.functional import erase_each, minimal_flip_set, read, worst_case_attention
from attnlight.probing.leave_one_out import prediction_change
from attnlight.records import read_record
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of
from tests.callbacks.test_base import trainer
from tests.probing.oracles import Hiding

Vector = NDArray[np.float64]
SHARED = ("items", "label", "probabilities", "attention", "item_logits", "bias", "evidence")


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


def numbers(value: Any) -> Vector:
    """All numbers of nested lists, in order."""
    parts = [numbers(part) for part in value] if np.ndim(value) else [np.array([value], float)]
    return np.concatenate(parts)


def test_texts_are_those_of_the_file_of_predictions(written: tuple[Path, Path]) -> None:
    for text, predicted in pairs(written):
        assert list(text["tokens"]) == list(predicted["tokens"])
        for name in SHARED:
            found, expected = (numbers(row[name]) for row in (text, predicted))
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_are_those_of_the_functions(written: tuple[Path, Path]) -> None:
    """A sentence has no context here: leave-one-out is erasure."""
    flipped = 0
    for text, predicted in pairs(written):
        weights = torch.tensor(np.stack(predicted["attention"])).double()
        items = torch.tensor(np.stack(predicted["item_logits"][0])).double()[None]
        mask, bias = weights > 0, torch.tensor(predicted["bias"]).double()
        loo = prediction_change(erase_each(weights, items, bias, mask), read(weights, items))
        np.testing.assert_allclose(text["scores_loo"], loo[0], atol=1e-5)
        size, members = minimal_flip_set(weights, items, bias, mask)
        minimal = members[0].double() if size > 0 else torch.full_like(loo[0], torch.nan)
        np.testing.assert_array_equal(text["scores_minimal"], minimal)
        worst = worst_case_attention(weights, items, mask, 0.01)[0]
        np.testing.assert_allclose(text["scores_worst_case"], worst[0], atol=1e-4)
        flipped += int(size > 0)
    assert 0 < flipped < 41


def test_a_data_set_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="list does not give the words of its texts"):
        TextColumns([])


def test_candidates_of_a_readout_that_is_not_affine(
    tmp_path: Path, written: tuple[Path, Path]
) -> None:
    data = corpus()
    task = task_of(data)
    task.model = Hiding(task.model, lambda _, output: replace(output, item_logits=None))
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
