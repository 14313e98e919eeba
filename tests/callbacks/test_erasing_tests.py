"""Both tests that erase items, on real models and in runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import TextBatch
from attnlight.callbacks import DecisionFlip, InterpretabilityTest, SingleErasure
from attnlight.models import FlatClassifier
from attnlight.records import read_record
from tests.callbacks.handmade import Hidden, batch_of, random_output
from tests.callbacks.test_base import run_test
from tests.outside import OutsideTask, Texts, collate

DISCRETE = ("flip", "count", "fraction", "needs", "never", "excess", "outdone", "length")


def texts_of(index: list[int], padding: int = 0) -> TextBatch:
    """Texts whose tokens are a function of their index, some words twice."""
    found = []
    for number in index:
        random = torch.Generator().manual_seed(number)
        found.append(torch.randint(4, 30, (2 + 5 * number % 23,), generator=random))
    tokens = torch.nn.utils.rnn.pad_sequence(found, batch_first=True)
    tokens = pad(tokens, (0, padding))
    return TextBatch(index=torch.tensor(index), tokens=tokens, mask=tokens != 0)


def columns_of(model: FlatClassifier, index: list[int], padding: int = 0) -> dict[str, Tensor]:
    batch = texts_of(index, padding)
    with torch.no_grad():
        output = model(batch)
        return {
            **SingleErasure(released=True).measure(batch, output, model),
            **DecisionFlip().measure(batch, output, model),
        }


def model_of(encoder: str, dtype: torch.dtype) -> FlatClassifier:
    torch.manual_seed(1)
    model = FlatClassifier(
        30, 3, encoder=encoder, embedding_size=12, hidden_size=10, embedding_scale=1.0
    )
    for weights in (model.attention, model.decoder):
        for parameter in weights.parameters():
            torch.nn.init.normal_(parameter, std=1.5)
    return model.to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("encoder", ["bilstm", "none"])
def test_padding_batch_and_order_change_nothing(encoder: str, dtype: torch.dtype) -> None:
    model = model_of(encoder, dtype)
    index = list(range(40))
    whole = columns_of(model, index)
    assert whole["removed_count_attention"].unique().numel() > 8
    assert 0 < whole["never_flips_random"].mean() < 1
    alone = [columns_of(model, [number]) for number in index]
    ways = {
        "alone": {name: torch.cat([one[name] for one in alone]) for name in whole},
        "padded": columns_of(model, index, padding=9),
        "reversed": {n: c.flip(0) for n, c in columns_of(model, index[::-1]).items()},
    }
    tolerance = 2e-6 if dtype == torch.float32 else 1e-10
    for way, columns in ways.items():
        for name, column in columns.items():
            exact = any(part in name for part in DISCRETE)
            torch.testing.assert_close(
                column,
                whole[name],
                rtol=0,
                atol=1e-7 if exact else tolerance,
                equal_nan=True,
                msg=lambda text, where=f"{way}, {name}": f"{where}: {text}",
            )


@pytest.mark.parametrize(
    "kind", [SingleErasure(released=True), DecisionFlip()], ids=lambda t: t.name
)
def test_logits_that_are_no_numbers_make_their_row_undefined_alone(
    kind: InterpretabilityTest,
) -> None:
    output = random_output()

    def columns() -> dict[str, Tensor]:
        with torch.no_grad():
            return dict(kind.measure(batch_of(output), output, Hidden(output)))

    clean = columns()
    assert output.item_logits is not None
    output.item_logits[5, 0, 2, 1] = torch.nan
    output.item_logits[6, 0, 2, 1] = torch.inf
    output.weights[7, 0, 2] = torch.nan
    others = torch.tensor([row not in (5, 6, 7) for row in range(60)])
    for name, column in columns().items():
        assert name == "length" or column[~others].isnan().all(), name
        assert torch.equal(column[others].nan_to_num(-9), clean[name][others].nan_to_num(-9)), name


@pytest.mark.parametrize(
    ("kind", "heads", "classes"),
    [
        (SingleErasure(released=True), 1, 2),
        (SingleErasure(released=True), 2, 3),
        (DecisionFlip(), 1, 2),
        (DecisionFlip(), 1, 4),
        (DecisionFlip(), 2, 3),
        (DecisionFlip(emptied="uniform"), 1, 2),
        (DecisionFlip(emptied="uniform"), 1, 4),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_readout_that_is_not_affine_is_asked(
    kind: InterpretabilityTest, heads: int, classes: int
) -> None:
    """All columns are the same, but the minimum, which is unknown then."""
    output = random_output(heads, classes, zeros=0.0 if heads > 1 else 0.15)
    model = Hidden(output)
    closed = kind.measure(batch_of(output), output, Hidden(output))
    for inference in (False, True):
        with torch.inference_mode(inference), torch.no_grad():
            hidden = replace(model.output, weights=model.output.weights.clone())
            asked = kind.measure(batch_of(hidden), hidden, model)
        assert asked.keys() == closed.keys()
        for name, column in closed.items():
            if "minimal" in name or name.startswith("excess"):
                assert asked[name].isnan().all()
            else:
                torch.testing.assert_close(asked[name], column, equal_nan=True, rtol=0, atol=1e-9)


@pytest.mark.parametrize("affine", [True, False])
def test_a_model_from_outside(tmp_path: Path, affine: bool) -> None:
    torch.manual_seed(0)
    task, texts = OutsideTask(affine), Texts(40)
    torch.nn.init.normal_(task.model.values.weight)
    tests = SingleErasure(figures=affine), DecisionFlip(figures=affine)
    run_test(tmp_path, *tests, task=task, texts=texts)
    erased = read_record(tmp_path / "records/test/single_erasure.parquet")
    flips = read_record(tmp_path / "records/test/decision_flip.parquet")
    assert flips.metadata["emptied"] == "bias"
    assert erased.metadata["tie"] == flips.metadata["tie"] == 1e-5
    counts = flips.columns["removed_count_attention"]
    for item in range(40):
        count, flips_top = by_readout(task, texts, item)
        assert counts[item] == pytest.approx(count, nan_ok=True)
        single = erased.columns["flip_top_attention"][item]
        assert single == pytest.approx(flips_top, nan_ok=True)
    assert 0 < np.nanmean(erased.columns["flip_top_attention"]) < 1
    assert np.isnan(flips.columns["minimal_count"]).all() != affine
    assert len(list((tmp_path / "figures/test").glob("*.svg"))) == 2 * affine


def by_readout(task: OutsideTask, texts: Texts, item: int) -> tuple[float, float]:
    """Items that attention's order erases, and whether its first flips, asked of the model."""
    with torch.no_grad():
        output = task.model(collate([texts[item]]))
        items = output.mask.shape[1]
        order = output.weights[0].mean(0).argsort(descending=True).tolist()
        flipped = []
        for count in range(1, items):
            left = output.weights.clone()
            left[:, :, order[:count]] = 0
            left /= left.sum(-1, keepdim=True)
            logits = task.model.readout(output, left.unsqueeze(2))
            flipped.append(bool(logits.argmax() != output.logits.argmax()))
        flipped.append(bool(output.bias.argmax() != output.logits.argmax()))
    count = flipped.index(True) + 1 if True in flipped else math.nan
    return count, float(flipped[0]) if items > 1 else math.nan


def test_memory_of_many_classes_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are followed in pieces, which changes nothing."""
    model = model_of("none", torch.float64)
    whole = columns_of(model, list(range(10)))
    monkeypatch.setattr("attnlight.functional.erasure.flips._TERMS", 1)
    for name, column in columns_of(model, list(range(10))).items():
        torch.testing.assert_close(column, whole[name], equal_nan=True)
