"""The frontier of mean divergence and mean change, against every assignment of tolerances."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.statistics import frontier

Floats = NDArray[np.float64]


def assignments(js: Floats, epsilons: Floats) -> tuple[Floats, Floats]:
    """Mean change and mean JS of each way to give every instance one interval of the grid."""
    lower = np.concatenate([[0.0], epsilons[:-1]])
    ways = list(itertools.product(range(len(epsilons)), repeat=len(js)))
    tvd = np.array([lower[list(way)].mean() for way in ways])
    mean = np.array([js[np.arange(len(js)), list(way)].mean() for way in ways])
    return tvd, mean


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_best_of_all_assignments(seed: int) -> None:
    random = np.random.default_rng(seed)
    js = np.sort(random.random((4, 5)), axis=1)
    js[0] = js[0].round(1)  # flat pieces and ties
    epsilons = np.sort(random.random(5))
    tvd, mean = frontier(js, epsilons)
    every_tvd, every_mean = assignments(js, epsilons)
    for slope in [0.0, *random.exponential(2, 40)]:
        best = (every_mean - slope * every_tvd).max()
        assert (mean - slope * tvd).max() == pytest.approx(best, abs=1e-12)
    beyond = every_tvd <= tvd[-1]
    assert (every_mean[beyond] <= np.interp(every_tvd[beyond], tvd, mean) + 1e-12).all()
    assert every_mean.max() == pytest.approx(mean[-1])
    for corner in zip(tvd, mean, strict=True):  # where slopes tie, corners lie between assignments
        distance = np.hypot(every_tvd - corner[0], every_mean - corner[1])
        assert distance.min() < 1e-12 or seed == 0
    slopes = np.diff(mean) / np.diff(tvd)
    assert (np.diff(slopes) <= 1e-9).all()
    assert (slopes > 0).all()


def test_undefined_rows_are_left_out() -> None:
    js = np.array([[0.1, 0.5], [math.nan, math.nan], [0.1, 0.3]], dtype=np.float32)
    epsilons = np.array([0.1, 1.0])
    for one, other in zip(frontier(js, epsilons), frontier(js[[0, 2]], epsilons), strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(not len(part) for part in frontier(js[1:2], epsilons))


@pytest.mark.parametrize("epsilons", [[0.1], [0.2, 0.1], [0.0, 0.1]])
def test_the_grid_must_fit(epsilons: list[float]) -> None:
    with pytest.raises(InputError, match=r"JS \(n, K\) at K epsilons that ascend"):
        frontier(np.zeros((3, 2)), np.array(epsilons))
