"""Curves of adversaries against a naive reading, and their intervals against SciPy."""

import sys

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from attnlight.errors import InputError
from attnlight.statistics import exclusivity, exclusivity_curve, exclusivity_difference
from attnlight.statistics.exclusivity import Runs

LAMBDAS = np.array([0.0, 0.001, 0.01, 0.1, 1.0])


def grid(seeds: int, shift: float = 0.0, noise: float = 0.02) -> Runs:
    """Runs whose share rises with their cost, with noise in both."""
    random = np.random.default_rng(int(1000 * shift))
    lambdas = np.tile(LAMBDAS, seeds)
    cost = np.tile([0.0, 0.002, 0.01, 0.05, 0.3], seeds)
    share = np.tile([0.2, 0.3, 0.5, 0.7, 0.75], seeds) + shift
    names = np.repeat(np.arange(seeds) + 40, len(LAMBDAS))
    tvd = 0.1 + cost + noise / 10 * random.normal(size=len(cost))
    return Runs(names, lambdas, tvd, share + noise * random.normal(size=len(cost)))


def naive(lambdas: np.ndarray, tvd: np.ndarray, share: np.ndarray, at: float) -> float:
    """The height at a cost: between the best run that costs no more and the next better one."""
    start = np.mean([t for lam, t in zip(lambdas, tvd, strict=True) if lam == 0])
    level = np.mean([s for lam, s in zip(lambdas, share, strict=True) if lam == 0])
    runs = zip(lambdas, tvd, share, strict=True)
    points = [(0.0, level), *((max(t - start, 0.0), s) for lam, t, s in runs if lam != 0)]
    corners = [p for p in points if all(q[1] < p[1] or q == p for q in points if q[0] <= p[0])]
    below = max(p for p in corners if p[0] <= at)
    after = [p for p in corners if p[0] > at]
    if not after:
        return below[1]
    above = min(after)
    return below[1] + (above[1] - below[1]) * (at - below[0]) / (above[0] - below[0])


def heights(runs: Runs, at: float = 0.02) -> list[float]:
    """The naive height of each seed."""
    own = ([values[runs.seeds == seed] for values in runs[1:]] for seed in np.unique(runs.seeds))
    return [naive(*values, at) for values in own]


def test_runs_of_lambda_0_are_averaged() -> None:
    curve = exclusivity_curve(
        np.array([0.0, 0.0, 1.0]), np.array([0.1, 0.2, 0.25]), np.array([0.1, 0.3, 0.9])
    )
    np.testing.assert_allclose(curve.cost, [0.0, 0.1])
    np.testing.assert_allclose(curve.share, [0.2, 0.9])


@pytest.mark.parametrize("at", [0.003, 0.02, 0.04, 0.25])
def test_equals_a_naive_reading_with_students_interval(
    at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[exclusivity.__module__], "COST", at)
    runs = grid(6, noise=0.1)
    expected, found = heights(runs, at), exclusivity(runs)
    assert found.value == pytest.approx(np.mean(expected), abs=1e-12)
    assert (found.seeds, found.censored) == (6, 0)
    assert found[1:3] == pytest.approx(ttest_1samp(expected, 0).confidence_interval(0.95))


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_leave_no_interval(seeds: int) -> None:
    few, many = exclusivity(grid(seeds)), exclusivity_difference(grid(5), grid(seeds))
    assert np.isnan([few.low, few.high, many.low, many.high]).all()
    assert np.isfinite([few.value, many.value]).all()


def test_ends_are_clipped_to_what_is_possible() -> None:
    runs = grid(3, noise=0.0)
    apart = runs._replace(share=np.where(runs.seeds == 41, 0.0, 1.0))
    assert exclusivity(apart)[1:3] == (0, 1)
    assert exclusivity_difference(apart, apart)[1:3] == (-1, 1)


def test_a_seed_that_does_not_reach_the_cost_is_censored() -> None:
    runs = grid(3, noise=0.0)
    cheap = Runs(*(values[(runs.seeds != 41) | (runs.lambdas < 0.1)] for values in runs))
    found = exclusivity(cheap)
    whole, ends = 0.5 + 0.2 * 0.01 / 0.04, 0.5
    assert found.value == pytest.approx((2 * whole + ends) / 3)
    assert (found.seeds, found.censored) == (3, 1)
    assert found.high > (2 * whole + 1) / 3 > found.low  # it may be anything up to 1
    expected = ttest_1samp([whole, ends, whole], 0).confidence_interval().low
    assert found.low == pytest.approx(expected)


@pytest.mark.parametrize("at", [0.02, 0.25])
def test_a_flat_end_is_not_censored(at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expensive run that is no corner still shows what there is up to its cost, of 0.25."""
    tvd, share = np.array([0.0, 0.005, 0.25]), np.array([0.2, 0.6, 0.5])
    monkeypatch.setattr(sys.modules[exclusivity.__module__], "COST", at)
    found = exclusivity(Runs(np.zeros(3, int), np.array([0.0, 0.1, 1.0]), tvd, share))
    assert (found.value, found.censored) == (0.6, 0)


def test_a_difference_has_welchs_interval() -> None:
    a, b = grid(3, noise=0.1), grid(4, shift=0.1, noise=0.1)
    test = ttest_ind(heights(a), heights(b), equal_var=False)
    found = exclusivity_difference(a, b)
    assert found.value == pytest.approx(np.mean(heights(a)) - np.mean(heights(b)))
    assert (found.low, found.high) == pytest.approx(test.confidence_interval())
    assert (found.seeds, found.censored) == (7, 0)


def test_a_difference_with_censored_seeds_is_bounded() -> None:
    whole = grid(3, noise=0.0)
    cheap = Runs(*(values[whole.lambdas < 0.1] for values in whole))
    height = 0.5 + 0.2 * 0.01 / 0.04
    found = exclusivity_difference(whole, cheap)
    assert np.isnan(found.value)
    assert found[1:] == (pytest.approx(height - 1), pytest.approx(height - 0.5), 6, 3)
    other = exclusivity_difference(cheap, whole)
    assert other[1:3] == (pytest.approx(0.5 - height), pytest.approx(1 - height))


def test_a_run_without_measures_is_left_out() -> None:
    runs = grid(3)
    broken = runs.tvd.copy()
    broken[runs.lambdas == 1.0] = np.nan
    fewer = Runs(*(values[runs.lambdas < 1.0] for values in runs))
    assert exclusivity(runs._replace(tvd=broken)) == exclusivity(fewer)


def test_what_cannot_be_read_is_refused() -> None:
    runs = grid(2)
    without = Runs(*(values[(runs.seeds == 40) | (runs.lambdas > 0)] for values in runs))
    with pytest.raises(InputError, match="needs a run of lambda 0"):
        exclusivity(without)
