import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from torch import Tensor

from attnlight.functional import (
    js_divergence,
    kl_divergence,
    masked_softmax,
    max_js,
    normalized_js,
    total_variation,
)
from attnlight.functional.divergence import divergence_to_constant

Divergence = Callable[[Tensor, Tensor], Tensor]
VALUES: dict[str, Any] = {"kl": kl_divergence, "js": js_divergence, "tvd": total_variation}


def distributions(seed: int, *shape: int, zeros: float = 0.0) -> Tensor:
    random = np.random.default_rng(seed)
    values = random.gamma(0.3, size=shape) * (random.random(shape) >= zeros) + 1e-300
    return torch.from_numpy(values / values.sum(-1, keepdims=True))


def test_equal_scipy() -> None:
    p, q = distributions(1, 40, 3, 11), distributions(2, 40, 3, 11)
    torch.testing.assert_close(
        kl_divergence(p, q), torch.from_numpy(entropy(p.numpy(), q.numpy(), axis=-1))
    )
    torch.testing.assert_close(
        js_divergence(p, q), torch.from_numpy(jensenshannon(p.numpy(), q.numpy(), axis=-1) ** 2)
    )
    torch.testing.assert_close(
        total_variation(p, q), torch.from_numpy(np.abs(p.numpy() - q.numpy()).sum(-1) / 2)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_js_of_disjoint_supports_is_ln_2(dtype: torch.dtype) -> None:
    p = distributions(3, 200, 20).to(dtype)
    q = distributions(4, 200, 20).to(dtype)
    left, right = torch.cat([p, 0 * q], -1), torch.cat([0 * p, q], -1)
    js = js_divergence(left, right)
    assert (js <= math.log(2)).all()
    torch.testing.assert_close(
        js, torch.full_like(js, math.log(2)), rtol=4 * torch.finfo(dtype).eps, atol=0
    )
    one, other = torch.tensor([1.0, 0.0], dtype=dtype), torch.tensor([0.0, 1.0], dtype=dtype)
    assert js_divergence(one, other).item() == torch.tensor(2.0, dtype=dtype).log().item()


def exact_js(p: list[float], q: list[float]) -> float:
    with localcontext(prec=60):
        total = Decimal(0)
        for x, y in zip(map(Decimal, p), map(Decimal, q), strict=True):
            mean = (x + y) / 2
            total += sum(v * (v / mean).ln() for v in (x, y) if v > 0) / 2
        return float(total)


def exact_kl(p: list[float], q: list[float]) -> float:
    with localcontext(prec=60):
        pairs = zip(map(Decimal, p), map(Decimal, q), strict=True)
        return float(sum(x * (x / y).ln() - x + y for x, y in pairs if x > 0))


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4, 1e-5])
def test_nearly_equal_distributions_keep_their_digits(size: float) -> None:
    p = distributions(5, 30).float()
    q = p * (1 + size * torch.randn(30, generator=torch.Generator().manual_seed(0)))
    js = js_divergence(p, q).item()
    assert js == pytest.approx(exact_js(p.tolist(), q.tolist()), rel=2e-6)
    kl = kl_divergence(p, q).item()
    assert kl == pytest.approx(exact_kl(p.tolist(), q.tolist()), rel=3e-7 / size)


def test_nothing_is_lost_at_the_ends_of_the_float_range() -> None:
    p = torch.tensor([1.0, 1e-42, 1e-30, 0.0])
    q = torch.tensor([1e-42, 1.0, 1e-30, 1e-45])
    assert kl_divergence(p, q).item() == pytest.approx(42 * math.log(10), rel=1e-2)
    assert js_divergence(p, q).item() == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("divergence", VALUES.values())
def test_equal_distributions_are_at_zero(divergence: Divergence) -> None:
    p = distributions(6, 50, 7, zeros=0.3).float()
    assert (divergence(p, p) == 0).all()
    assert (divergence(torch.zeros(3), torch.zeros(3)) == 0).all()


@pytest.mark.parametrize("divergence", VALUES.values())
def test_gradients_equal_finite_differences(divergence: Divergence) -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 5, dtype=torch.float64, generator=random).requires_grad_()
    assert torch.autograd.gradcheck(lambda both: divergence(*both.softmax(-1)), scores)


@pytest.mark.parametrize("subnormal", [-95.0, -93.5])  # far from the other's, and near
@pytest.mark.parametrize("to_constant", [False, True])
@pytest.mark.parametrize("kind", VALUES)
def test_gradients_are_finite_on_padding_and_where_attention_underflows(
    kind: Any, to_constant: bool, subnormal: float
) -> None:
    mask = torch.tensor([[True, True, True, False]])
    base = masked_softmax(torch.tensor([[1.0, subnormal, 0.0, 0.0]]), mask)
    scores = torch.tensor([[0.0, -95.0, -200.0, 0.0]], requires_grad=True)
    weights = masked_softmax(scores, mask)
    assert 0 < weights[0, 1] < torch.finfo(torch.float32).tiny
    assert weights[0, 2] == 0
    if to_constant:
        value = divergence_to_constant(base, weights, kind).sum()
        gradients = torch.autograd.grad(value, scores)
    else:
        base.requires_grad_()
        value = VALUES[kind](weights, base).sum()
        gradients = torch.autograd.grad(value, [scores, base])
    assert all(values.isfinite().all() for values in (value, *gradients))


@pytest.mark.parametrize("scale", [1, 5, 20, 60])
def test_js_keeps_its_digits_where_one_side_is_far_below_the_other(scale: int) -> None:
    random = torch.Generator().manual_seed(scale)
    p, q = (
        (scale * torch.randn(500, 6, generator=random, dtype=torch.float64)).softmax(-1)
        for _ in range(2)
    )
    expected = jensenshannon(p.numpy(), q.numpy(), axis=-1) ** 2
    np.testing.assert_allclose(js_divergence(p, q), expected, atol=1e-15)
    np.testing.assert_allclose(js_divergence(p.float(), q.float()), expected, atol=5e-7)


@pytest.mark.parametrize("kind", VALUES)
def test_value_and_gradient_are_autograd_s(kind: Any) -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(7) < 1 + torch.arange(9)[:, None] % 7
    scores = (3 * torch.randn(9, 2, 7, generator=random)).double().requires_grad_()
    other = masked_softmax(3 * torch.randn(9, 2, 7, generator=random).double(), mask)
    weighed = torch.rand(9, 2, generator=random).double()
    found = divergence_to_constant(other, masked_softmax(scores, mask), kind)
    expected = VALUES[kind](masked_softmax(scores, mask), other)
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=1e-12)
    (slope,) = torch.autograd.grad((weighed * found).sum(), scores)
    (by_autograd,) = torch.autograd.grad((weighed * expected).sum(), scores)
    torch.testing.assert_close(slope, by_autograd, atol=1e-12, rtol=1e-9)
    assert not slope.transpose(1, 2)[~mask].any()


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
    found = max_js(weights, MASK)
    expected = [largest_of_items(row, mask) for row, mask in zip(weights, MASK, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found[3] == 0.0


def test_no_attention_is_further() -> None:
    weights = attention()
    ceiling = max_js(weights, MASK)
    random = np.random.default_rng(0)
    for row in range(3):
        size = int(MASK[row].sum())
        own = weights[row][MASK[row]].numpy()
        drawn = random.dirichlet(np.full(size, 0.05), 2_000)
        distances = jensenshannon(drawn, own[None], axis=1) ** 2
        assert np.nanmax(distances) <= ceiling[row] + 1e-9
        assert np.nanmax(distances) > 0.98 * ceiling[row]  # and the bound is met


def test_share_by_a_loop() -> None:
    weights, base = attention(3, seed=1), attention(3, seed=2)
    found = normalized_js(weights, base, MASK)
    for row in range(3):
        mean = np.mean([scipy_js(weights[row, head], base[row, head]) for head in range(3)])
        top = np.mean([largest_of_items(base[row, head], MASK[row]) for head in range(3)])
        assert found[row] == pytest.approx(mean / top, abs=1e-12)
    assert found[3].isnan()  # one item: attention has no choice
    one = normalized_js(weights[:, 0], base[:, 0], MASK)
    torch.testing.assert_close(
        one, normalized_js(weights[:, :1], base[:, :1], MASK), equal_nan=True
    )


@pytest.mark.parametrize("other", [0.9999999, 0.5])
def test_share_of_one_item_is_undefined_whatever_its_weight(other: float) -> None:
    """Weights that rounding left short of 1 would make a share of a largest JS of 1e-8."""
    mask = torch.tensor([[False, True, False]])
    base = torch.tensor([[0.0, 0.9999999, 0.0]], dtype=torch.float64)
    weights = torch.tensor([[0.0, other, 0.0]], dtype=torch.float64)
    assert max_js(base, mask) > 0
    assert normalized_js(weights, base, mask).isnan().all()
    assert normalized_js(weights.unsqueeze(1), base.unsqueeze(1), mask).isnan().all()
