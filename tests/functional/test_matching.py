"""Heads are matched as trying every order would match them."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from attnlight.functional import masked_softmax
from attnlight.functional.matching import head_divergences, match_heads

ROWS, ITEMS = 11, 6


def attention(heads: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    mask = torch.arange(ITEMS) < 1 + torch.arange(ROWS)[:, None] % ITEMS
    return masked_softmax(2 * torch.randn(ROWS, heads, ITEMS, generator=random), mask), mask


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_divergences_equal_a_loop_over_heads_and_rows(heads: int) -> None:
    (own, mask), (base, _) = attention(heads, 0), attention(heads, 1)
    found = head_divergences(own, base)
    assert found.dtype == torch.float64
    for b in range(heads):
        for h in range(heads):
            summed = 0.0
            for row in range(ROWS):
                p, q = (w[row, n][mask[row]].double().numpy() for w, n in ((own, h), (base, b)))
                summed += jensenshannon(p, q) ** 2
            assert found[b, h].item() == pytest.approx(summed, abs=1e-6)
    halves = head_divergences(own[:4], base[:4]) + head_divergences(own[4:], base[4:])
    torch.testing.assert_close(halves, found)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_order_is_closer(seed: int) -> None:
    divergences = torch.rand(4, 4, generator=torch.Generator().manual_seed(seed)).double()
    sums = {
        order: sum(float(divergences[b, h]) for b, h in enumerate(order))
        for order in permutations(range(4))
    }
    assert tuple(match_heads(divergences)) == min(sums, key=sums.__getitem__)


def test_an_order_is_found_again() -> None:
    base, _ = attention(5, 3)
    order = [3, 0, 4, 1, 2]
    moved = base[:, order]
    found = match_heads(head_divergences(moved, base))
    assert torch.equal(moved[:, found], base)
    np.testing.assert_array_equal(np.argsort(order), found)


def test_nothing_to_go_by_keeps_the_order() -> None:
    assert match_heads(torch.zeros(3, 3)) == [0, 1, 2]
