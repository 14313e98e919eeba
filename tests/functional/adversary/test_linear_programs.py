"""Worst-case attention of several classes and its bound, against SciPy and pairs solved one by one."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from attnlight.functional import read, worst_case_attention
from attnlight.functional.adversary.exact import max_js_attention
from attnlight.functional.adversary.linear_programs import Instance
from attnlight.functional.adversary.multiclass import best_two_item_mixture, log_ratio_bounds
from attnlight.functional.adversary.worst_case import pairwise_upper_bound
from tests.functional.adversaries import KINDS, case, jensen_shannon, moved, readouts

Vector = NDArray[np.float64]


def js_of(attention: Vector, weights: Vector) -> float:
    return float(jensen_shannon(torch.from_numpy(attention), torch.from_numpy(weights)))


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
            lambda a: -js_of(np.clip(a, 0, None), weights),
            start,
            bounds=[(0, 1)] * items,
            constraints=constraints,
            method="SLSQP",
            options={"maxiter": 60},
        )
        attention = np.clip(found.x, 0, None)
        attention /= attention.sum()
        if (sets @ softmax(attention @ logits) - own).max() <= epsilon + 1e-9:
            best = max(best, js_of(attention, weights))
    return best


@pytest.mark.slow
def test_comes_near_the_best_of_many_searches() -> None:
    """6 items, 4 classes: at most .005 nats below on average, and the bound holds for both."""
    weights, logits, mask = readouts(24, 6, 4)
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


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_the_least_over_all_pairs(
    kind: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, logits, mask = case(kind, rows=16, items=8, classes=5)
    prediction = read(weights, logits).softmax(-1)
    upper = torch.full((16,), math.inf, dtype=torch.float64)
    for c, d in itertools.combinations(range(5), 2):
        low, high = log_ratio_bounds(prediction[:, c], prediction[:, d], epsilon)
        e, bounds = logits[..., c] - logits[..., d], (low[:, None], high[:, None])
        vertex, _ = max_js_attention(weights, e, *bounds, mask)
        upper = torch.minimum(upper, jensen_shannon(vertex, weights))
    found = pairwise_upper_bound(weights, logits, mask, epsilon)
    torch.testing.assert_close(found, upper, rtol=1e-10, atol=1e-12)
    monkeypatch.setattr("attnlight.functional.adversary.worst_case._SOLVED", 3)
    monkeypatch.setattr("attnlight.functional.adversary.worst_case._CHECKED", 20)
    torch.testing.assert_close(pairwise_upper_bound(weights, logits, mask, epsilon), found)


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
def test_bounds_hold_and_are_exact_where_they_are_made(epsilon: float) -> None:
    """What a program spends of epsilon against both sums, by their definition."""
    random = np.random.default_rng(0)
    places = 0
    for _ in range(20):
        weights, logits = random.dirichlet(np.ones(8)), 3 * random.standard_normal((8, 6))
        instance = Instance(weights, logits, weights @ logits, epsilon)
        prediction = np.exp(instance.log_prediction)
        at = np.minimum(random.standard_normal(6), instance.highest)
        (first, last), rise, fall, spent = instance.bounds(at, np.ones(6, dtype=bool))
        np.testing.assert_allclose(prediction * np.expm1(first + last), epsilon, rtol=1e-9)
        for x in [at, *np.linspace(-6, instance.highest, 200)]:
            one, below = np.clip(x, 0, first), np.clip(-x, 0, None)
            rest = np.clip(x - first, 0, None)
            risen = epsilon * (rise[0] @ one + rise[1] @ rest)
            fallen = epsilon * (spent + fall[0] @ one + fall[1] @ below)
            exact = prediction * np.expm1(x)
            assert risen >= exact.clip(min=0).sum() - 1e-12
            assert fallen >= (-exact).clip(min=0).sum() - 1e-12
            if x is at:
                np.testing.assert_allclose(risen, exact.clip(min=0).sum(), atol=1e-12)
                np.testing.assert_allclose(fallen, (-exact).clip(min=0).sum(), atol=1e-12)
                places += 1
    assert places == 20


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_light_classes_change_no_answer(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 classes most add up to little; what programs of all classes find is found without them."""
    weights, logits, mask = readouts(8, 12, 60)
    logits += 5 * torch.randn(8, 1, 60, generator=torch.Generator().manual_seed(0)).double()
    adversary, js, upper = worst_case_attention(weights, logits, mask, epsilon)
    row = (weights[0].numpy(), logits[0].numpy(), read(weights, logits)[0].numpy(), epsilon)
    assert 2 <= Instance(*row).heavy.sum() <= 40
    assert (moved(adversary, weights, logits) <= epsilon + 1e-9).all()
    monkeypatch.setattr("attnlight.functional.adversary.linear_programs._REST", -1.0)
    assert Instance(*row).heavy.all()
    _, all_js, all_upper = worst_case_attention(weights, logits, mask, epsilon)
    torch.testing.assert_close(upper, all_upper)
    assert (all_js > 0.05).all()
    assert (js >= 0.97 * all_js).all()


def test_a_light_class_that_a_solution_makes_probable_is_taken_in() -> None:
    """All attention on either of two items would predict a class without weight: none alone is kept."""
    weights = np.array([0.45, 0.35, 0.1, 0.1])
    logits = np.zeros((4, 5))
    logits[:, 0], logits[:, 1] = 4.0, [3.0, 3.2, 3.1, 3.4]
    logits[2, 3], logits[3, 4], logits[:2, 3:] = 30.0, 30.0, -30.0
    logits[2, 4] = logits[3, 3] = -30.0
    instance = Instance(weights, logits, weights @ logits, 0.05)
    assert instance.heavy.tolist() == [True, True, True, False, False]
    found = instance.climb(instance.weights, instance.weights)
    assert instance.heavy.all()
    assert np.abs(instance.change(found)).sum() / 2 <= 0.05
    every = Instance(weights, logits, weights @ logits, 0.05)
    every.heavy[:] = True
    best = every.climb(every.weights, every.weights)
    assert instance.js(found) == pytest.approx(every.js(best), abs=0.02)
    assert every.js(best) > 0.05


def test_the_slope_is_the_gradient_of_js() -> None:
    weights, attention = np.random.default_rng(0).dirichlet(np.full(8, 5.0), 2)
    leaf = torch.from_numpy(attention).requires_grad_()
    (gradient,) = torch.autograd.grad(jensen_shannon(leaf, torch.from_numpy(weights)), leaf)
    instance = Instance(weights, np.zeros((8, 2)), np.zeros(2), 0.1)
    np.testing.assert_allclose(instance.slope(attention), gradient, rtol=1e-9)
