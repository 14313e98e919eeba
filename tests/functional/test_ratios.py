"""Ratios of sums against plain loops with the same draws."""

import math

import numpy as np
import pytest

from attnlight.functional.ratios import resampled_ratios
from attnlight.functional.seeds import difference_of_groups, resample_seeds, seeds_then_instances
from attnlight.functional.statistics import percentile_interval


def loop(tops: list[float], bottoms: list[float], chosen: list[int]) -> float:
    """The ratio of two sums, each instance in turn."""
    top = bottom = 0.0
    for k in chosen:
        if not (math.isnan(tops[k]) or math.isnan(bottoms[k])):
            top += tops[k]
            bottom += bottoms[k]
    return top / bottom if bottom > 0 else math.nan


@pytest.fixture
def pairs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    tops, bottoms = random.random((30, 3)), random.integers(0, 9, (30, 3)).astype(float)
    tops[3, 0] = bottoms[8, 1] = np.nan
    bottoms[:, 2] = 0.0
    return tops, bottoms


def test_equal_a_loop_in_every_resample(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    tops, bottoms = pairs
    held, drawn = resampled_ratios(tops, bottoms, resamples=25, seed=7)
    random = np.random.default_rng(7)
    rows = [random.integers(0, 30, 30).tolist() for _ in range(25)]
    for column in range(3):
        own = tops[:, column].tolist(), bottoms[:, column].tolist()
        assert held[column] == pytest.approx(loop(*own, list(range(30))), nan_ok=True)
        expected = [loop(*own, chosen) for chosen in rows]
        assert drawn[:, column] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(held[2])


def test_are_means_where_every_instance_counts_once() -> None:
    random = np.random.default_rng(5)
    values = [random.normal(size=(seeds, 40)) for seeds in (3, 4)]
    groups = []
    for group in values:
        parts = [resampled_ratios(run[:, None], np.ones((40, 1)), resamples=60) for run in group]
        groups.append((np.concatenate([p[0] for p in parts]), np.hstack([p[1] for p in parts])))
    ((mean, drawn),) = resample_seeds(groups[:1])
    expected = seeds_then_instances(values[0], resamples=60)
    assert (mean, *percentile_interval(drawn)) == pytest.approx(expected[:3])
    (first, one), (second, other) = resample_seeds(groups)
    less = difference_of_groups(*values, resamples=60)
    found = first - second, *percentile_interval(one - other)
    assert found == pytest.approx(less[:3])
