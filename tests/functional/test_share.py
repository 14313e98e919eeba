"""The largest JS that attention can have, against SciPy and against attention drawn at random."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from attnlight.functional import js_share, largest_js
from attnlight.functional.slab import one_item_js

MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0]]).bool()


def attention(heads: int | None = None, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    shape = (4, 5) if heads is None else (4, heads, 5)
    mask = MASK if heads is None else MASK.unsqueeze(1)
    scores = 3 * torch.randn(shape, generator=random, dtype=torch.float64)
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def scipy_js(p: Tensor, q: Tensor) -> float:
    return float(jensenshannon(p.numpy(), q.numpy())) ** 2


def largest_of_items(row: Tensor, mask: Tensor) -> float:
    """The largest JS of all attention on one item, by SciPy."""
    items = mask.nonzero().squeeze(-1).tolist()
    return max(scipy_js(torch.eye(5, dtype=torch.float64)[item], row) for item in items)


def test_equals_the_best_single_item() -> None:
    weights = attention()
    found = largest_js(weights, MASK)
    expected = [largest_of_items(row, mask) for row, mask in zip(weights, MASK, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found[3] == 0.0


def test_no_attention_is_further() -> None:
    weights = attention()
    ceiling = largest_js(weights, MASK)
    random = np.random.default_rng(0)
    for row in range(3):
        size = int(MASK[row].sum())
        own = weights[row][MASK[row]].numpy()
        drawn = random.dirichlet(np.full(size, 0.05), 2_000)
        distances = jensenshannon(drawn, own[None], axis=1) ** 2
        assert np.nanmax(distances) <= ceiling[row] + 1e-9
        assert np.nanmax(distances) > 0.98 * ceiling[row]  # and the bound is met


def test_is_what_the_worst_case_is_measured_by() -> None:
    weights = attention(heads=3)
    each = one_item_js(weights).masked_fill(~MASK.unsqueeze(1), 0.0).amax(-1)
    torch.testing.assert_close(largest_js(weights, MASK), each, atol=1e-12, rtol=0)


def test_an_item_of_no_weight_is_as_far_as_can_be() -> None:
    weights = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    mask = torch.tensor([[True, True], [True, False]])
    assert largest_js(weights, mask).tolist() == [math.log(2), 0.0]


def test_share_by_a_loop() -> None:
    weights, base = attention(3, seed=1), attention(3, seed=2)
    found = js_share(weights, base, MASK)
    for row in range(3):
        mean = np.mean([scipy_js(weights[row, head], base[row, head]) for head in range(3)])
        top = np.mean([largest_of_items(base[row, head], MASK[row]) for head in range(3)])
        assert found[row] == pytest.approx(mean / top, abs=1e-12)
    assert found[3].isnan()  # one item: attention has no choice
    one = js_share(weights[:, 0], base[:, 0], MASK)
    torch.testing.assert_close(one, js_share(weights[:, :1], base[:, :1], MASK), equal_nan=True)


@pytest.mark.parametrize("other", [0.9999999, 0.5])
def test_share_of_one_item_is_undefined_whatever_its_weight(other: float) -> None:
    """Weights that rounding left short of 1 would make a share of a largest JS of 1e-8."""
    mask = torch.tensor([[False, True, False]])
    base = torch.tensor([[0.0, 0.9999999, 0.0]], dtype=torch.float64)
    weights = torch.tensor([[0.0, other, 0.0]], dtype=torch.float64)
    assert largest_js(base, mask) > 0
    assert js_share(weights, base, mask).isnan().all()
    assert js_share(weights.unsqueeze(1), base.unsqueeze(1), mask).isnan().all()


def test_share_goes_from_0_to_1() -> None:
    base = attention(2)
    assert js_share(base, base, MASK)[:3].tolist() == [0.0] * 3
    least = base.masked_fill(~MASK.unsqueeze(1), 2.0).argmin(-1, keepdim=True)
    furthest = torch.zeros_like(base).scatter(-1, least, 1.0)
    torch.testing.assert_close(js_share(furthest, base, MASK)[:3], torch.ones(3).double())


def test_padding_changes_nothing() -> None:
    weights, base = attention(2, seed=3), attention(2, seed=4)
    wide = [torch.nn.functional.pad(values, (0, 7)) for values in (weights, base, MASK)]
    torch.testing.assert_close(
        js_share(wide[0], wide[1], wide[2]), js_share(weights, base, MASK), equal_nan=True
    )
