"""Worst-case attention by linear programs, against many starts of SciPy's SLSQP and by its bounds."""

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from torch import Tensor

from attnlight.functional import worst_case_attention
from attnlight.functional.adversary.linear_programs import linear_program_attention
from attnlight.functional.adversary.multiclass import best_two_item_mixture
from tests.functional.adversaries import KINDS, case, jensen_shannon, moved

Vector = NDArray[np.float64]


def readouts(rows: int, items: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random affine readouts whose rows are all of the same length."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, items, dtype=torch.float64, generator=random)
    logits = 2 * torch.randn(rows, items, classes, dtype=torch.float64, generator=random)
    return scores.softmax(-1), logits, torch.ones(rows, items, dtype=torch.bool)


def by_slsqp(weights: Vector, logits: Vector, epsilon: float, starts: int) -> float:
    """The largest JS that SLSQP finds; total variation is the largest over all sets of classes."""
    items, classes = logits.shape
    sets = np.array(list(itertools.product([0, 1], repeat=classes)), dtype=float)
    own = sets @ softmax(weights @ logits)
    constraints = [
        {"type": "eq", "fun": lambda a: a.sum() - 1},
        {"type": "ineq", "fun": lambda a: epsilon + own - sets @ softmax(a @ logits)},
    ]
    random, best = np.random.default_rng(0), 0.0
    for start in random.dirichlet(np.full(items, 0.3), starts):
        found = minimize(
            lambda a: -float(jensenshannon(np.clip(a, 0, None), weights) ** 2),
            start,
            bounds=[(0, 1)] * items,
            constraints=constraints,
            method="SLSQP",
            options={"maxiter": 60},
        )
        attention = np.clip(found.x, 0, None)
        attention /= attention.sum()
        if (sets @ softmax(attention @ logits) - own).max() <= epsilon + 1e-9:
            best = max(best, float(jensenshannon(attention, weights) ** 2))
    return best


def test_comes_near_the_best_of_many_searches() -> None:
    """6 items, 4 classes: at most .005 nats below on average, and the bound holds for both."""
    weights, logits, mask = readouts(30, 6, 4)
    adversary, js, upper = worst_case_attention(weights, logits, mask, 0.01)
    best = np.array(
        [
            by_slsqp(w, z, 0.01, starts=6)
            for w, z in zip(weights.numpy(), logits.numpy(), strict=True)
        ]
    )
    assert best.mean() > 0.15
    assert np.maximum(best - js.numpy(), 0).mean() <= 0.005
    assert (best <= upper.numpy() + 1e-6).all()
    assert (moved(adversary, weights, logits) <= 0.01 + 1e-12).all()


@pytest.mark.parametrize(("classes", "least"), [(6, 0.6), (12, 0.5), (20, 0.4)])
def test_many_classes_leave_attention_free(classes: int, least: float) -> None:
    """Where no attention on one or two items keeps the prediction, many items together do."""
    weights, logits, mask = readouts(4, 60, classes)
    edges = best_two_item_mixture(weights, logits, mask, 0.01, torch.zeros(4, dtype=torch.float64))[
        1
    ]
    adversary, js, upper = worst_case_attention(weights, logits, mask, 0.01)
    assert (js >= edges).all()
    if classes > 6:
        assert (edges == 0).all()
    assert js.mean() > least
    assert (js <= upper).all()
    assert ((adversary > 1e-6).sum(-1) > 2).any()
    without = worst_case_attention(weights, logits, mask, 0.01, programs=False)[1]
    torch.testing.assert_close(without, edges, rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_keeps_the_prediction(kind: str, epsilon: float) -> None:
    weights, logits, mask = case(kind, rows=12, items=7, classes=5)
    found = linear_program_attention(weights, logits, mask, epsilon)
    assert (found >= 0).all()
    assert (found[~mask] == 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(12).double(), rtol=1e-12, atol=0)
    assert (moved(found, weights, logits) <= epsilon + 1e-12).all()
    assert torch.equal(found[mask.sum(-1) == 1], weights[mask.sum(-1) == 1])


def test_search_and_edges_are_never_lost() -> None:
    weights, logits, mask = case("sharp", rows=24, items=8, classes=3)
    edges = best_two_item_mixture(
        weights, logits, mask, 0.05, torch.zeros(24, dtype=torch.float64)
    )[1]
    programs = jensen_shannon(linear_program_attention(weights, logits, mask, 0.05), weights)
    js = worst_case_attention(weights, logits, mask, 0.05)[1]
    assert (js >= torch.maximum(edges, programs) - 1e-12).all()
    assert (programs > edges + 1e-6).any()
