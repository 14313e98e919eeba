"""Plausibility of explanations against plain loops over texts."""

from math import nan
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.attribution import build_attribution
from attnlight.callbacks import Plausibility
from attnlight.data.rationales import RATIONALE
from attnlight.datamodules import TextDataModule
from attnlight.functional import expected_average_precision, plausibility
from attnlight.records import read_record
from tests.callbacks.handmade import columns_of, marked, random_output
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of, texts_of
from tests.callbacks.test_base import trainer
from tests.data.local import write_corpus

METHODS = ["attention", "input_gradient", {"name": "occlusion", "replacement": "zero"}]
LABELS = ("attention", "input_gradient", "occlusion")
MEASURES = ("auprc", "token_f1", "iou_f1")


def of_items(scores: Tensor, gold: list[bool]) -> dict[str, float]:
    """The measures of scores (n,) of one row's items, as `tests/functional` tests them."""
    marked = torch.tensor([gold])
    found = plausibility(scores[None], marked, torch.ones_like(marked))
    return {name: float(value) for name, value in found.items()}


def test_chance_is_what_random_orders_give_on_average() -> None:
    output = random_output(rows=40)
    batch = marked(output, RATIONALE)
    found = columns_of(Plausibility(["attention"], draws=400), output, batch)
    names = [f"chance_{name}" for name in MEASURES]
    every = []
    for seed in range(300):
        test = Plausibility([{"name": "random", "seed": seed}], draws=1)
        random = columns_of(test, output, batch)
        every.append(torch.stack([random[f"{name}_random"] for name in MEASURES]))
    mean, spread = torch.stack(every).mean(0), torch.stack(every).std(0) / 300**0.5
    expected = torch.stack([found[name] for name in names])
    defined = ~expected.isnan()
    assert torch.equal(defined, ~mean.isnan())
    # Standard errors of the 300 orders; of spans the 400 drawn sets have errors too.
    assert ((mean - expected).abs() <= 6 * spread + 1e-9)[defined].all()
    count, items = found["rationale_items"], output.mask.sum(-1)
    torch.testing.assert_close(
        expected[0], expected_average_precision(count, items), equal_nan=True
    )


@pytest.mark.parametrize("length", [None, 6])
def test_from_corpus_to_record(tmp_path: Path, length: int | None) -> None:
    """Words and sentences, three methods, each text by itself against the record."""
    data = corpus(length)
    task = task_of(data).double()
    test = Plausibility(METHODS, keep_scores=True)
    started = trainer(tmp_path, test)
    started.test(task, datamodule=data, verbose=False)
    record = read_record(tmp_path / "records/test/plausibility.parquet")
    columns = record.columns
    assert record.metadata["methods"]["occlusion"]["replacement"] == "zero"
    assert record.metadata["methods"]["input_gradient"]["explains"] == "log odds"
    assert "human_auprc" not in columns
    for row, batch, output, gold in texts_of(data, task.model):
        np.testing.assert_allclose(
            columns["probabilities"][row], output.logits.softmax(-1)[0].detach(), atol=1e-6
        )
        for spec, label in zip(METHODS, LABELS, strict=True):
            method = build_attribution(spec)  # type: ignore[arg-type]
            scores = method(task.model, batch, output, output.logits.argmax(-1))
            kept = columns[f"scores_{label}"][row]
            np.testing.assert_allclose(kept, scores[output.mask], atol=1e-9)
            for name, value in of_items(torch.tensor(kept), gold).items():
                assert columns[f"{name}_{label}"][row] == pytest.approx(value, nan_ok=True), name
    mean = float(started.callback_metrics["test/plausibility/auprc_occlusion"])
    assert mean == pytest.approx(np.nanmean(columns["auprc_occlusion"]), rel=1e-5)


def several(folder: Path) -> TextDataModule:
    rows = {
        "tokens": [["so", "very", "good"], ["bad", "bad", "film"], ["a", "film"], ["good"]] * 3,
        "label": [1, 0, 0, 1] * 3,
        "marks": [[[0, 0, 1], [0, 1, 1]], [[1, 1, 0], [1, 0, 0]], [], [[1], [1]]] * 3,
    }
    path = write_corpus(folder / "corpus", train=rows, validation=rows, test=rows)
    return TextDataModule(
        str(path), tokens="tokens", rationale="marks", cache_dir=str(folder / "cache")
    )


def test_people_are_measured_where_several_marked(tmp_path: Path) -> None:
    data = several(tmp_path)
    task = task_of(data)
    started = trainer(tmp_path, Plausibility(["attention"]))
    started.test(task, datamodule=data, verbose=False)
    record = read_record(tmp_path / "records/test/plausibility.parquet")
    assert set(record.metadata["measures"]) == {
        f"{source}_{name}" for source in ("human", "chance") for name in MEASURES
    } | {*(f"{name}_attention" for name in MEASURES), "without_rationale"}
    # {good} and {very, good}: F1 2/3; all of one span, half of the other.
    np.testing.assert_allclose(record.columns["human_token_f1"][:4], [2 / 3, 2 / 3, nan, 1])
    np.testing.assert_allclose(record.columns["human_iou_f1"][:4], [1, 1, nan, 1])
    assert record.columns["rationale_items"][:4].tolist() == [1, 1, 0, 1]
    assert record.columns["without_rationale"][:4].tolist() == [0, 0, 1, 0]
    assert "test/plausibility/human_auprc_low" in started.callback_metrics
