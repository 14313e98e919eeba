"""Sparse attention against a quadratic programme and a bisection of its threshold."""

import math
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.functional import masked_entmax, masked_softmax
from tests.functional.test_masking import random_mask

ALPHAS = pytest.mark.parametrize("alpha", [2.0, 1.5])
Array = NDArray[np.float64]


def bisected(scores: Array, alpha: float) -> Array:
    """Weights by bisection of the threshold at which they sum to 1."""
    scaled = (alpha - 1) * scores
    low, high = scaled.max() - 1, scaled.max()
    for _ in range(200):
        middle = (low + high) / 2
        total = (np.maximum(scaled - middle, 0) ** (1 / (alpha - 1))).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.maximum(scaled - low, 0) ** (1 / (alpha - 1))


def nearest(scores: Array) -> Array:
    """The distribution nearest to the scores: the quadratic programme, by trying every support."""
    best, least = scores, np.inf
    for size in range(1, len(scores) + 1):
        for support in map(list, combinations(range(len(scores)), size)):
            # Of these items alone, by the equations of Lagrange.
            system = np.block([[np.eye(size), np.ones((size, 1))], [np.ones((1, size)), 0]])
            weights = np.zeros(len(scores))
            weights[support] = np.linalg.solve(system, np.append(scores[support], 1))[:-1]
            distance = ((weights - scores) ** 2).sum()
            if (weights >= 0).all() and distance < least:
                best, least = weights, distance
    return best


def drawn(*shape: int, scale: float = 1.0) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return scale * torch.randn(shape, dtype=torch.float64, generator=random)


def test_sparsemax_is_the_nearest_distribution() -> None:
    scores = drawn(8, 7)
    weights = masked_entmax(scores, torch.ones(8, 7).bool(), alpha=2.0)
    for row, own in zip(weights.numpy(), scores.numpy(), strict=True):
        np.testing.assert_allclose(row, nearest(own), rtol=0, atol=1e-6)
    assert 0.2 < (weights == 0).double().mean() < 0.8


@ALPHAS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.3, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("shape", [(7, 9), (7, 3, 9), (7, 2, 400)])
def test_equals_a_bisection_over_the_items_of_the_mask(
    shape: tuple[int, ...], scale: float, dtype: torch.dtype, alpha: float
) -> None:
    scores, mask = drawn(*shape, scale=scale).to(dtype), random_mask(7, shape[-1])
    weights = masked_entmax(scores, mask, alpha)
    assert weights.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    if dtype == torch.float32:  # which has scores to so many digits
        tolerance *= max(1.0, scale)
    for row, kept in enumerate(mask):
        assert (weights[row][..., ~kept] == 0).all()
        for own, found in zip(
            scores[row].view(-1, shape[-1])[:, kept].double().numpy(),
            weights[row].view(-1, shape[-1])[:, kept].double().numpy(),
            strict=True,
        ):
            np.testing.assert_allclose(found, bisected(own, alpha), rtol=0, atol=tolerance)
            assert abs(found.sum() - 1) < tolerance


@ALPHAS
def test_gradients_are_those_of_finite_differences(alpha: float) -> None:
    scores, mask = drawn(5, 2, 7).requires_grad_(), random_mask(5, 7)
    weights = masked_entmax(scores, mask, alpha)
    assert ((weights == 0) & mask[:, None]).any()
    arguments = (scores,)
    assert torch.autograd.gradcheck(lambda x: masked_entmax(x, mask, alpha), arguments)
    assert torch.autograd.gradgradcheck(lambda x: masked_entmax(x, mask, alpha), arguments)
    (weights * drawn(7)).sum().backward()
    assert (scores.grad[weights == 0] == 0).all()
    torch.testing.assert_close(scores.grad.sum(-1), torch.zeros(5, 2).double(), rtol=0, atol=1e-12)


@ALPHAS
def test_nothing_is_zero_and_what_is_off_the_mask_does_not_count(alpha: float) -> None:
    mask = torch.tensor([[False] * 5, [True, True, False, False, False]])
    odd = [math.nan, math.inf, -math.inf]
    scores = torch.tensor([[1.0, 2.0, *odd], [0.5, 0.2, *odd]], requires_grad=True)
    weights = masked_entmax(scores, mask, alpha)
    assert weights[0].tolist() == [0] * 5
    expected = masked_entmax(torch.tensor([[0.5, 0.2]]), torch.ones(1, 2).bool(), alpha)
    assert torch.equal(weights[1, :2], expected[0])
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        weights.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0].tolist() == [0] * 5
    assert scores.grad[1, :2].abs().min() > 0
    for value in (math.nan, math.inf):  # on the mask: undefined, as of a softmax
        lost = torch.tensor([[value, 0.0]])
        for normalize in (masked_softmax, partial(masked_entmax, alpha=alpha)):
            assert normalize(lost, torch.ones(1, 2).bool()).isnan().any()
