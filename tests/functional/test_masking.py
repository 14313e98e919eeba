import math

import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy
from torch import Tensor

from attnlight.functional import attention_entropy, impermissible_penalty, masked_softmax


def random_mask(rows: int, items: int, seed: int = 0) -> Tensor:
    """At least one item in each row."""
    mask = torch.rand(rows, items, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[:, 0] |= ~mask.any(1)
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 9), (7, 3, 9), (7, 2, 4, 9)])
def test_softmax_equals_softmax_of_the_kept_items(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    scores = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 5
    mask = random_mask(7, 9)
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    for row in range(7):
        kept = mask[row]
        assert (weights[row][..., ~kept] == 0).all()
        expected = torch.from_numpy(softmax(scores[row][..., kept].numpy(), axis=-1))
        tolerance = 1e-6 if dtype == torch.float32 else 1e-14
        torch.testing.assert_close(
            weights[row][..., kept], expected.to(dtype), rtol=tolerance, atol=0
        )


def test_softmax_of_nothing_is_zero_with_zero_gradient() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[False] * 3, [True, True, False]]))
    assert weights[0].tolist() == [0, 0, 0]
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        weights.square().sum().backward()
    assert scores.grad[0].tolist() == [0, 0, 0]
    assert scores.grad[1, 2] == 0
    assert scores.grad[1, :2].abs().min() > 0


def test_softmax_ignores_what_stands_off_the_mask() -> None:
    mask = torch.tensor([[True, True, False, False, False]])
    scores = torch.tensor([[1.0, -2.0, math.nan, math.inf, -math.inf]], requires_grad=True)
    weights = masked_softmax(scores, mask)
    expected = masked_softmax(torch.tensor([[1.0, -2.0, 0, 0, 0]]), mask)
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)
    weights[0, 0].backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_survives_large_scores(dtype: torch.dtype) -> None:
    scores = torch.tensor([[3e4, 3e4, -3e4, 7e4], [-3e37, -3e37, 0, 0]], dtype=dtype)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    expected = torch.tensor([[0.5, 0.5, 0, 0]] * 2, dtype=dtype)
    assert torch.equal(masked_softmax(scores, mask), expected)


def test_entropy_equals_scipy() -> None:
    weights = masked_softmax(torch.randn(6, 3, 9, dtype=torch.float64), random_mask(6, 9))
    expected = torch.from_numpy(entropy(weights.numpy(), axis=-1))
    torch.testing.assert_close(attention_entropy(weights), expected)
    one_hot = torch.tensor([[0.0, 1.0, 0.0]])
    assert attention_entropy(one_hot).item() == 0
    assert attention_entropy(torch.full((1, 8), 0.125)).item() == pytest.approx(math.log(8))


def test_entropy_gradient_is_finite_where_weights_are_zero() -> None:
    scores = torch.tensor([[300.0, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    attention_entropy(masked_softmax(scores, mask)).sum().backward()
    assert scores.grad.isfinite().all()


def naive_penalty(scores: Tensor, impermissible: Tensor, mask: Tensor) -> Tensor:
    """The penalty of each head of each row by a loop, in Python's floats."""
    found = torch.zeros(scores.shape[:2], dtype=torch.float64)
    for row, head in torch.cartesian_prod(*map(torch.arange, scores.shape[:2])).tolist():
        items = mask[row].nonzero().flatten().tolist()
        marked = [bool(impermissible[row, item]) for item in items]
        if any(marked) and not all(marked):
            weights = softmax([float(scores[row, head, item]) for item in items])
            mass = sum(w for w, m in zip(weights, marked, strict=True) if m)
            found[row, head] = -math.log(1 - mass) if mass < 1 else math.inf
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_penalty_equals_a_loop(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    scores = torch.randn(40, 3, 9, dtype=dtype, generator=random) * 4 + 200
    impermissible, mask = torch.rand(40, 9, generator=random) < 0.4, random_mask(40, 9)
    mask[0], impermissible[1], impermissible[2] = False, True, False
    expected = naive_penalty(scores, impermissible, mask)
    found = impermissible_penalty(scores, impermissible, mask)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    assert (found[:3] == 0).all()
    assert (found > 0).sum() > 60


@pytest.mark.parametrize("size", [0.0, 1.0, 200.0, -200.0])
def test_penalty_of_extreme_scores_is_finite(size: float) -> None:
    scores = torch.tensor([[[size, -size, size / 2, math.nan]]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    for marked in ([0], [1], [0, 2], [1, 2], []):
        impermissible = torch.zeros(1, 4, dtype=torch.bool)
        impermissible[0, [*marked, 3]] = True
        penalty = impermissible_penalty(scores, impermissible, mask)
        (gradient,) = torch.autograd.grad(penalty.sum(), scores)
        assert penalty.isfinite().all()
        assert gradient.isfinite().all()
        assert gradient[0, 0, 3] == 0
        # d/ds of -log(1 - mass) is w for impermissible items, and w - w / (1 - mass) for others.
        weights = softmax(scores.detach()[0, 0, :3].double().numpy())
        kept = [item for item in range(3) if item not in marked]
        within = dict(zip(kept, softmax(scores.detach()[0, 0, kept].double().numpy()), strict=True))
        by_hand = [weights[item] - within.get(item, 0.0) for item in range(3)]
        torch.testing.assert_close(
            gradient[0, 0, :3].double(), torch.tensor(by_hand) * bool(marked), rtol=1e-5, atol=1e-6
        )
        mass = weights[marked].sum()
        if mass < 0.99:
            assert penalty.item() == pytest.approx(-math.log(1 - mass), abs=1e-6)
