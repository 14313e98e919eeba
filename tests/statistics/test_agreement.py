"""Agreement of runs, against scipy and a naive bootstrap."""

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import t

from attnlight.statistics import agreement as reliability
from attnlight.statistics.agreement import agreement_between, mean_over_pairs, shuffled
from attnlight.statistics.bootstrap import bootstrap_means
from tests.callbacks.token_loops import tau

Lists = list[NDArray[np.float64]]


def lists(seed: int, n: int = 60) -> Lists:
    """Scores of 0 to 39 items, the same lengths for every seed."""
    lengths = np.random.default_rng(0).integers(0, 40, n)
    random = np.random.default_rng(seed)
    return [np.round(random.normal(size=length), 1) for length in lengths]


@pytest.mark.parametrize("most", [1, 100, 1 << 18])
def test_tau_equals_scipy(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliability, "_ITEMS", most)
    first, second = lists(1), lists(2)
    expected = [tau(*map(torch.from_numpy, pair)) for pair in zip(first, second, strict=True)]
    assert np.isnan(expected).any()
    np.testing.assert_allclose(agreement_between(first, second)["tau"], expected, rtol=1e-12)


def test_items_that_neither_scores_are_left_out() -> None:
    first, second = [np.array([1.0, np.nan, 2.0, 0.0])], [np.array([3.0, np.nan, 1.0, 0.5])]
    without = [[np.delete(scores[0], 1)] for scores in (first, second)]
    found = agreement_between(first, second)
    assert found == agreement_between(*without)
    assert found["tau"] == pytest.approx(1 / 3)
    second[0][0] = np.nan  # one alone: undefined
    assert all(np.isnan(values).all() for values in agreement_between(first, second).values())


def test_shuffles_depend_on_key_and_seed_alone() -> None:
    scores = lists(3)
    rows = np.stack([np.arange(60) * 7, np.zeros(60, dtype=np.int64)], axis=1)
    found = shuffled(scores, rows)
    assert any((a != b).any() for a, b in zip(found, scores, strict=True))
    for a, b in zip(found, scores, strict=True):
        np.testing.assert_array_equal(np.sort(a), np.sort(b))
    part = shuffled(scores[20:40], rows[20:40])
    for a, b in zip(part, found[20:40], strict=True):
        np.testing.assert_array_equal(a, b)
    again = shuffled(scores, rows, seed=1)
    assert any((a != b).any() for a, b in zip(found, again, strict=True))


def values(seeds: int, n: int, effect: float) -> NDArray[np.float64]:
    """Pairs (P, n) whose means differ by how far their seeds are apart, some undefined."""
    random = np.random.default_rng(seeds)
    pairs = list(combinations(range(seeds), 2))
    found = np.array([effect * (i + j) + random.normal(size=n) for i, j in pairs])
    found[random.random(found.shape) < 0.1] = np.nan
    return found


def test_two_seeds_leave_the_instances() -> None:
    found = values(2, 80, 1.0)
    (expected,) = bootstrap_means(found.T, np.arange(80))
    assert mean_over_pairs(found, 2, np.arange(80))[:3] == pytest.approx(expected[:3])


@pytest.mark.parametrize("seeds", [3, 5])
def test_interval_is_that_of_the_jackknife(seeds: int) -> None:
    """Without noise of instances the half-width is t times the jackknife's standard error."""
    each = np.random.default_rng(7).normal(size=seeds)
    found = np.array([[a + b + a * b] for a, b in combinations(each, 2)])
    without = [
        np.mean([a + b + a * b for a, b in combinations(np.delete(each, s), 2)])
        for s in range(seeds)
    ]
    error = np.sqrt((seeds - 1) / seeds * np.sum(np.subtract(without, found.mean()) ** 2))
    half = t.ppf(0.975, seeds - 1) * error
    mean = mean_over_pairs(found, seeds, np.arange(1))
    assert mean[:3] == pytest.approx((found.mean(), found.mean() - half, found.mean() + half))
    low, high = mean_over_pairs(found, seeds, np.arange(1), bounds=(0.0, 0.1))[1:3]
    assert (low, high) == (0.0, 0.1)


@pytest.mark.parametrize("seeds", [3, 5])
def test_interval_covers_the_mean_of_all_pairs(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap of seeds, which leaves the pairs of a seed with itself out, covers .6 to .85."""
    monkeypatch.setattr("attnlight.statistics.bootstrap.RESAMPLES", 100)
    random, held, studies = np.random.default_rng(seeds), 0, 1_000
    for _ in range(studies):
        effects = random.normal(0, 0.1, seeds)
        pairs = np.array([[a + b] for a, b in combinations(effects, 2)])
        noise = random.normal(0, 0.1, 60) + random.normal(0, 0.2, (len(pairs), 60))
        mean = mean_over_pairs(0.2 + pairs + noise, seeds, np.arange(60))
        held += mean.low <= 0.2 <= mean.high
    assert 0.93 <= held / studies <= 0.97


def test_interval_resamples_whole_clusters() -> None:
    easy = np.random.default_rng(1).normal(size=40)  # alike for all pairs
    found = np.repeat(values(3, 40, 0.0) + 3 * easy, 25, axis=1)
    alone = mean_over_pairs(found, 3, np.arange(1000))
    together = mean_over_pairs(found, 3, np.repeat(np.arange(40), 25))
    assert together.high - together.low > 1.2 * (alone.high - alone.low)


def test_nothing_defined() -> None:
    assert np.isnan(mean_over_pairs(np.full((3, 4), np.nan), 3, np.arange(4))[:2]).all()
