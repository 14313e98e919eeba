"""Measures of several batches at once are those of each batch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from attnlight.batch import TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.callbacks.hooks import readouts as module
from attnlight.callbacks.hooks.readouts import HeldReadouts
from attnlight.models.readout import Readout, readout_of
from tests.attribution.scenes import scene
from tests.callbacks.every import NEEDS, built

WAITING = [test for test in built(*NEEDS) if test.joins_batches]


def short_batches(name: str) -> tuple[Any, list[TextBatch]]:
    """A model, and batches of one to three texts without more padding than their longest needs."""
    model, batch = scene(name)
    batch.labels = batch.index % 2
    lengths = batch.mask.flatten(2).any(-1).sum(1) if batch.mask.ndim == 3 else batch.mask.sum(1)
    order, parts = lengths.argsort(), []
    for texts in torch.split(order, [1, 2, len(order) - 3]):
        parts.append(batch.select(texts).trim(int(lengths[texts].max())))
    return model, parts


@torch.no_grad()
def readouts(name: str) -> list[Readout]:
    model, batches = short_batches(name)
    return [readout_of(batch, model(batch), model) for batch in batches]


def added(parts: list[Readout]) -> tuple[HeldReadouts, list[list[Readout]]]:
    held = HeldReadouts()
    return held, [held.add(part) for part in parts]


@pytest.mark.parametrize("name", ["bilstm", "sparse han", "affine pair", "two heads"])
@pytest.mark.parametrize("test", WAITING, ids=lambda test: test.name)
def test_waiting_changes_no_measure(test: InterpretabilityTest, name: str) -> None:
    parts = readouts(name)
    held, early = added(parts)
    (joined,) = held.release()
    assert early == [[], [], []]
    assert held.release() == []
    measure: Callable[..., Any] = test.measure
    each = [measure(part.batch, part.output, part) for part in parts]
    found = measure(joined.batch, joined.output, joined)
    assert found.keys() == each[0].keys()
    for column, values in found.items():
        expected = torch.cat([columns[column] for columns in each])
        assert_close(values, expected, rtol=0, atol=1e-7, equal_nan=True)


def test_those_who_wait_for_the_same_batches_share_what_joins_them() -> None:
    parts = readouts("bilstm")
    one, other, less = (added(chosen)[0] for chosen in (parts, parts, parts[1:]))
    (joined,), (again,), (fewer,) = one.release(), other.release(), less.release()
    assert again is joined
    assert len(fewer.lengths) == len(joined.lengths) - len(parts[0].lengths)


def test_many_weights_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = readouts("bilstm")
    weights = [part.output.weights.numel() for part in parts]
    monkeypatch.setattr(module, "WEIGHTS", max(sum(weights[:2]), weights[2]))
    held, found = added(parts)
    assert [[len(readout.lengths) for readout in now] for now in found] == [[], [], [3]]
    assert held.release() == [parts[2]]


@pytest.mark.parametrize("name", ["heads", "translation", "pair"])
def test_rows_of_tokens_and_opaque_readouts_do_not_wait(name: str) -> None:
    model, batch = scene(name)
    with torch.no_grad():
        readout = readout_of(batch, model(batch), model)
    assert HeldReadouts().add(readout)[0] is readout


def test_tests_that_ask_the_model_again_do_not_wait() -> None:
    assert {test.name for test in WAITING} == {
        "adversarial_attention",
        "attention_permutation",
        "decision_flip",
        "predictions",
        "single_erasure",
    }
