"""The search of opaque readouts by gradients, against a plain search by Adam."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.functional import opaque_adversary
from tests.functional.adversaries import case, require_kept
from tests.functional.adversary.opaque_decoders import (
    EPSILON,
    Decoders,
    adversaries,
    by_adam,
    decoders,
)


def check(model: Decoders, found: tuple[Tensor, Tensor]) -> None:
    mask = torch.ones_like(model.weights, dtype=torch.bool)
    require_kept(found, model.weights, mask, lambda a: model.read(a.unsqueeze(1)), EPSILON)


@pytest.mark.parametrize(
    ("items", "classes", "hidden"), [(12, 6, 16), (12, 2, 16), (20, 6, 32), (3, 5, 16)]
)
def test_reaches_what_64_starts_of_adam_reach(items: int, classes: int, hidden: int) -> None:
    model = decoders(6, items, classes, hidden)
    found, few = adversaries(model), adversaries(model, programs=False)
    check(model, found)
    assert (found[1] >= few[1] - 1e-9).all()
    gaps = by_adam(model) - found[1]
    assert gaps.mean() < 0.005
    assert gaps.max() < 0.03
    if classes == 6:
        assert (found[1] - few[1]).mean() > 0.3


@pytest.mark.parametrize("evaluations", [3, 50, 400, 2000])
@pytest.mark.parametrize("programs", [False, True])
def test_keeps_its_budget(evaluations: int, programs: bool) -> None:
    """One row at a time: forward passes of the readout, and two more for each with a gradient."""
    model, spent, all_js = decoders(5, 20, 4), 0, []

    def counted(given: Tensor, row: slice) -> Tensor:
        nonlocal spent
        logits = model.part(row).read(given)
        spent += given.shape[2]
        if logits.requires_grad:
            logits.register_hook(lambda _: count(2 * given.shape[2]))
        return logits

    def count(more: int) -> None:
        nonlocal spent
        spent += more

    for number in range(5):
        spent, row = 0, slice(number, number + 1)
        readout, mask = partial(counted, row=row), torch.ones(1, 20, dtype=torch.bool)
        _, js = opaque_adversary(
            model.weights[row], readout, mask, EPSILON, programs=programs, evaluations=evaluations
        )
        assert 0 < spent <= evaluations
        all_js.append(float(js))
    if (evaluations, programs) == (2000, True):
        assert spent > 300
        few = adversaries(model, programs=False)[1]
        assert np.mean(all_js) > few.mean() + 0.05


def test_takes_what_has_no_gradient() -> None:
    """Without gradients, and in inference mode, mixtures of few items are left."""
    model = decoders(4, 8, 3)
    few = adversaries(model, programs=False)
    arguments = (
        model.weights,
        torch.no_grad()(model.read),
        torch.ones(4, 8, dtype=torch.bool),
        EPSILON,
    )
    torch.testing.assert_close(opaque_adversary(*arguments)[1], few[1], rtol=0, atol=1e-12)
    with torch.inference_mode():
        torch.testing.assert_close(adversaries(model)[1], few[1], rtol=0, atol=1e-12)
    assert (adversaries(model)[1] > few[1] + 1e-3).any()


@pytest.mark.parametrize("kind", ["sharp", "zeros", "equal logits", "extreme", "few values"])
def test_odd_rows(kind: str) -> None:
    """Rows of one item, weights of 0 and logits of thousands."""
    weights, logits, mask = case(kind, 8, 4, classes=5)

    def read(given: Tensor) -> Tensor:
        return torch.tanh(given.squeeze(1) @ logits) * 3

    few = opaque_adversary(weights, read, mask, EPSILON, programs=False)[1]
    found = opaque_adversary(weights, read, mask, EPSILON)
    require_kept(found, weights, mask, lambda attention: read(attention.unsqueeze(1)), EPSILON)
    assert (found[1] >= few - 1e-9).all()
    assert (found[1][mask.sum(-1) == 1] < 1e-12).all()
