"""Adversaries of opaque readouts against exact answers, fine grids and a plain search by Adam."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.functional import (
    opaque_adversary,
    read,
    search_adversary,
    total_variation,
    worst_case_attention,
)
from attnlight.functional.readout.opaque import ReadoutFunction
from tests.functional.adversaries import KINDS, case, jensen_shannon, require_kept
from tests.functional.adversary.opaque_decoders import (
    EPSILON,
    adversaries,
    by_adam,
    decoders,
)


def affine(logits: Tensor) -> ReadoutFunction:
    """The readout of item logits, one head."""
    return lambda candidates: read(candidates.squeeze(1), logits)


def squashed(
    rows: int, items: int, classes: int, seed: int = 0
) -> tuple[Tensor, ReadoutFunction, Tensor]:
    """Weights (R, N), a readout through tanh, and a mask of all lengths from 1."""
    random = torch.Generator().manual_seed(seed)
    weights, _, mask = case("random", rows, items, seed=seed)
    states = torch.randn(rows, items, 5, dtype=torch.float64, generator=random)
    decoder = torch.randn(5, classes, dtype=torch.float64, generator=random)
    return weights, lambda given: torch.tanh(given.squeeze(1) @ states) @ decoder, mask


def check_kept(
    weights: Tensor, readout: ReadoutFunction, mask: Tensor, found: tuple[Tensor, Tensor]
) -> None:
    require_kept(found, weights, mask, lambda attention: readout(attention.unsqueeze(1)), 0.01)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "extreme"])
def test_is_nearly_the_exact_answer_where_there_is_one(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, logits, mask = case(kind, rows=12, items=12)
    exact = worst_case_attention(weights, logits, mask, 0.01)[1]
    found = opaque_adversary(weights, affine(logits), mask, 0.01, programs=False)
    check_kept(weights, affine(logits), mask, found)
    assert (found[1] <= exact + 1e-12).all()
    assert (exact - found[1]).mean() < 0.01
    if kind == "random":
        monkeypatch.setattr("attnlight.functional.readout.opaque._ELEMENTS", 1)
        in_blocks = opaque_adversary(weights, affine(logits), mask, 0.01, programs=False)
        torch.testing.assert_close(in_blocks[1], found[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("items", [2, 3])
def test_reaches_a_fine_grid_on_a_readout_that_is_not_affine(items: int) -> None:
    weights, readout, mask = squashed(60, items, classes=2)
    found = opaque_adversary(weights, readout, mask, 0.01, programs=False)
    check_kept(weights, readout, mask, found)
    steps = torch.linspace(0, 1, 201, dtype=torch.float64)
    one, two = torch.meshgrid(steps, steps, indexing="ij")
    inside = one + two <= 1 + 1e-12
    if items == 2:
        inside &= two == 0
    grid = torch.stack([one, two, (1 - one - two).clamp(min=0)], dim=-1)[inside]
    grid = grid[:, [0, 2]] if items == 2 else grid
    both = readout(torch.cat([grid.expand(60, -1, -1), weights[:, None]], 1)[:, None]).softmax(-1)
    kept = total_variation(both[:, :-1], both[:, -1:]) <= 0.01
    kept &= ~((grid > 0) & ~mask[:, None]).any(-1)
    best = jensen_shannon(grid, weights.unsqueeze(1)).masked_fill(~kept, 0.0).amax(-1)
    # Four mixtures on each side and three kinds of tries: some rows have better ones.
    assert (found[1] > best - 0.01).double().mean() > 0.97
    assert best.amax() > 0.05


@pytest.mark.parametrize("classes", [3, 4])
def test_finds_some_attention_for_several_classes(classes: int) -> None:
    weights, readout, mask = squashed(40, 12, classes, seed=1)
    found = opaque_adversary(weights, readout, mask, 0.01, programs=False)
    check_kept(weights, readout, mask, found)
    several = mask.sum(-1) > 1
    assert (found[1][several] > 1e-5).all()
    assert (found[1][~several] < 1e-12).all()
    searched = search_adversary(
        weights, readout, mask, 0.01, torch.arange(80).reshape(40, 2), steps=60, learning_rate=0.1
    )
    joined = opaque_adversary(weights, readout, mask, 0.01, searched[0], programs=False)
    assert (joined[1] >= torch.maximum(found[1], searched[1]) - 1e-12).all()
    assert (joined[1] > found[1] + 1e-6).any()


@pytest.mark.parametrize(("items", "classes", "hidden"), [(20, 6, 32), (12, 2, 16), (3, 5, 16)])
def test_reaches_what_64_starts_of_adam_reach(items: int, classes: int, hidden: int) -> None:
    model = decoders(4, items, classes, hidden)
    found, few = adversaries(model), adversaries(model, programs=False)
    check_kept(model.weights, model.read, torch.ones(4, items, dtype=torch.bool), found)
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
    readout, mask = torch.no_grad()(model.read), torch.ones(4, 8, dtype=torch.bool)
    found = opaque_adversary(model.weights, readout, mask, EPSILON)
    torch.testing.assert_close(found[1], few[1], rtol=0, atol=1e-12)
    with torch.inference_mode():
        torch.testing.assert_close(adversaries(model)[1], few[1], rtol=0, atol=1e-12)
    assert (adversaries(model)[1] > few[1] + 1e-3).any()


@pytest.mark.parametrize("kind", ["sharp", "zeros", "equal logits", "extreme", "few values"])
def test_odd_rows(kind: str) -> None:
    """Rows of one item, weights of 0 and logits of thousands."""
    weights, logits, mask = case(kind, 4, 4, classes=5)

    def squash(given: Tensor) -> Tensor:
        return torch.tanh(given.squeeze(1) @ logits) * 3

    few = opaque_adversary(weights, squash, mask, EPSILON, programs=False)[1]
    found = opaque_adversary(weights, squash, mask, EPSILON)
    check_kept(weights, squash, mask, found)
    assert (found[1] >= few - 1e-9).all()
    assert (found[1][mask.sum(-1) == 1] < 1e-12).all()
