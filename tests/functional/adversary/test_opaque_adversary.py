"""Adversaries of opaque readouts among mixtures of few items: against exact answers and fine grids.

The search by gradients is tested in `test_local_search`.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.errors import InputError
from attnlight.functional import (
    masked_softmax,
    opaque_adversary,
    read,
    search_adversary,
    total_variation,
    worst_case_attention,
)
from attnlight.functional.readout.opaque import ReadoutFunction
from tests.functional.adversaries import KINDS, case, jensen_shannon


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
    weights: Tensor, readout: Callable[[Tensor], Tensor], mask: Tensor, found: tuple[Tensor, Tensor]
) -> None:
    adversary, js = found
    both = readout(torch.stack([adversary, weights], dim=1).unsqueeze(1)).softmax(-1)
    assert (total_variation(both[:, 0], both[:, 1]) <= 0.01 + 1e-9).all()
    assert (adversary >= 0).all()
    assert (adversary[~mask] == 0).all()
    torch.testing.assert_close(adversary.sum(-1), torch.ones_like(js), rtol=1e-9, atol=0)
    torch.testing.assert_close(js, jensen_shannon(adversary, weights), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "extreme"])
def test_is_nearly_the_exact_answer_where_there_is_one(kind: str) -> None:
    weights, logits, mask = case(kind, rows=36, items=12)
    exact = worst_case_attention(weights, logits, mask, 0.01)[1]
    found = opaque_adversary(weights, affine(logits), mask, 0.01, programs=False)
    check_kept(weights, affine(logits), mask, found)
    assert (found[1] <= exact + 1e-12).all()
    assert (exact - found[1]).mean() < 0.01


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


def test_heads_are_taken_one_by_one_with_the_others_held() -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(6) < 1 + torch.arange(12)[:, None] % 6
    weights = masked_softmax(torch.randn(12, 2, 6, dtype=torch.float64, generator=random), mask)
    logits = torch.randn(12, 2, 6, 2, dtype=torch.float64, generator=random)
    adversary, js = opaque_adversary(
        weights, lambda given: read(given, logits), mask, 0.02, programs=False
    )
    exact = worst_case_attention(weights, logits, mask, 0.02)[1]
    assert adversary.shape == (12, 2, 6)
    assert (js <= exact + 1e-12).all()
    assert (exact - js).mean() < 0.01
    own = read(weights, logits).softmax(-1)
    for head in range(2):
        changed = weights.clone()
        changed[:, head] = adversary[:, head]
        assert (total_variation(read(changed, logits).softmax(-1), own) <= 0.02 + 1e-9).all()


def test_neither_padding_nor_blocks_change_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, logits, mask = case("random", rows=12, items=8, classes=3)
    together = opaque_adversary(weights, affine(logits), mask, 0.05, programs=False)
    monkeypatch.setattr("attnlight.functional.adversary.opaque_adversary._CANDIDATES", 1)
    for row in range(12):
        one = slice(row, row + 1)
        wide = affine(pad(logits[one], (0, 0, 0, 3)))
        alone = opaque_adversary(
            pad(weights[one], (0, 3)), wide, pad(mask[one], (0, 3)), 0.05, programs=False
        )
        torch.testing.assert_close(alone[0][:, :-3], together[0][one], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone[1], together[1][one], rtol=0, atol=1e-10)


def test_logits_that_are_not_finite_spoil_their_own_row_alone() -> None:
    weights, logits, mask = case("random", rows=12, items=6)
    clean = opaque_adversary(weights, affine(logits), mask, 0.05, programs=False)
    broken = logits.clone()
    broken[8, 1] = math.nan
    found = opaque_adversary(weights, affine(broken), mask, 0.05, programs=False)
    assert found[1].isnan().nonzero().flatten().tolist() == [8]
    others = [row for row in range(12) if row != 8]
    assert torch.equal(found[0][others], clean[0][others])


def test_epsilon_must_be_above_0() -> None:
    weights, logits, mask = case("random", 2, 3)
    with pytest.raises(InputError, match=r"epsilon is 0.0, but must be above 0"):
        opaque_adversary(weights, affine(logits), mask, 0.0)
