"""Intervals over seeds and instances against naive loops, SciPy, and simulated truths."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp, ttest_ind

from attnlight.statistics.bootstrap import bootstrap_means
from attnlight.statistics.seed_bootstrap import (
    SeedInterval,
    difference_of_groups,
    mean_of_models,
    resampled_means,
    seed_interval,
    seeds_then_instances,
)
from tests.statistics.naive_seeds import Group, half_width

Floats = NDArray[np.float64]
RESAMPLES = 150
STUDIES = 2_000
_NUMBER = "attnlight.statistics.bootstrap.RESAMPLES"


def runs(seed: int, seeds: int, instances: int, between: float = 1.0, shift: float = 0.0) -> Floats:
    """Values with an effect of the seed, one of the instance, and noise."""
    random = np.random.default_rng(seed)
    effect = between * random.normal(size=(seeds, 1))
    instance = np.random.default_rng(99).normal(size=instances)
    return shift + effect + instance + 0.5 * random.normal(size=(seeds, instances))


def group(values: Floats) -> Group:
    """Each seed's mean, and in the resamples that the documented draws choose."""
    random, drawn = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, values.shape[1], values.shape[1])
        drawn.append([float(np.mean(row[~np.isnan(row)])) for row in values[:, chosen]])
    return np.nanmean(values, axis=1).tolist(), drawn


def ends(found: SeedInterval) -> tuple[float, float]:
    return found.low, found.high


class TestOneGroup:
    @pytest.mark.parametrize("seeds", [3, 6])
    def test_half_width_is_that_of_loops(self, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_NUMBER, RESAMPLES)
        values = runs(0, seeds, 25)
        values[1, ::3] = np.nan
        found, half = seeds_then_instances(values), half_width(group(values))
        assert found.mean == pytest.approx(np.nanmean(values, axis=1).mean())
        assert ends(found) == pytest.approx((found.mean - half, found.mean + half))
        assert found.values == pytest.approx(np.nanmean(values, axis=1))
        assert found.std == pytest.approx(statistics.stdev(found.values))

    def test_equal_instances_leave_students_t_over_seeds(self) -> None:
        each = np.random.default_rng(3).normal(size=5)
        found = seeds_then_instances(np.repeat(each[:, None], 50, axis=1))
        assert ends(found) == pytest.approx(ttest_1samp(each, 0).confidence_interval(0.95))

    def test_one_seed_has_the_percentile_interval_of_its_instances(self) -> None:
        """Two such groups that of their paired instances."""
        a, b = runs(1, 1, 60), runs(9, 1, 60)
        for found, values in ((seeds_then_instances(a), a), (difference_of_groups(a, b), a - b)):
            (expected,) = bootstrap_means(values.T, np.arange(60))
            np.testing.assert_allclose(found[:3], expected[:3], rtol=1e-12)
            assert math.isnan(found.std)

    def test_two_seeds_have_their_values_and_no_interval(self) -> None:
        values = runs(2, 2, 30)
        found = seeds_then_instances(np.insert(values, 1, np.nan, axis=0))
        assert found.mean == pytest.approx(values.mean())
        assert np.isnan(ends(found)).all()
        assert found.values == pytest.approx(values.mean(axis=1))

    def test_ends_are_clipped_to_the_range_of_the_measure(self) -> None:
        values = np.array([[0.0], [0.0], [0.9]])
        assert ends(seeds_then_instances(values, bounds=(0, 1))) == (0, 1)
        low, high = ends(seeds_then_instances(values))
        assert low < 0
        assert high > 1

    def test_clusters_go_together(self) -> None:
        values = np.repeat(runs(3, 4, 100, between=0.0), 4, axis=1)
        apart = seeds_then_instances(values)
        together = seeds_then_instances(values, np.arange(400) // 4)
        assert together.high - together.low > 1.5 * (apart.high - apart.low)

    @pytest.mark.filterwarnings("error")
    def test_undefined_seeds_are_left_out(self) -> None:
        values = runs(4, 3, 30)
        gap = np.concatenate([values, np.full((1, 30), np.nan)])
        assert seeds_then_instances(gap) == seeds_then_instances(values)
        nothing = seeds_then_instances(np.full((3, 30), np.nan))
        assert np.isnan(nothing[:3]).all()
        assert nothing.values == ()

    @pytest.mark.filterwarnings("error")
    def test_a_seed_that_some_resamples_lack_is_kept(self) -> None:
        values = runs(4, 4, 30)
        values[0, 1:] = np.nan  # defined on one instance, which a third of the resamples lack
        found = seeds_then_instances(values)
        assert found.mean == pytest.approx(np.mean([np.nanmean(row) for row in values]))
        assert np.isfinite(ends(found)).all()

    def test_runs_of_one_model_are_one_value(self) -> None:
        values, models = runs(6, 5, 25), ["a", "b", "a", "c", "a"]
        by_model = np.stack([values[[0, 2, 4]].mean(axis=0), values[1], values[3]])
        parts = (mean_of_models(x, models) for x in resampled_means(values))
        expected = seeds_then_instances(by_model)
        np.testing.assert_allclose(ends(seed_interval((*parts,))), ends(expected))


class TestTwoGroups:
    @pytest.mark.parametrize("sizes", [(3, 3), (6, 4), (1, 5), (4, 1)])
    def test_half_width_is_that_of_loops(
        self, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_NUMBER, RESAMPLES)
        a, b = runs(6, sizes[0], 25, shift=0.3), runs(7, sizes[1], 25, between=0.1)
        found, half = difference_of_groups(a, b), half_width(*map(group, (a, b)))
        assert found.mean == pytest.approx(a.mean() - b.mean())
        assert ends(found) == pytest.approx((found.mean - half, found.mean + half))
        assert found.values == ()

    def test_equal_instances_leave_welchs_interval(self) -> None:
        random = np.random.default_rng(3)
        a, b = random.normal(size=4), 3 * random.normal(size=7)
        found = difference_of_groups(a[:, None], b[:, None])
        assert ends(found) == pytest.approx(ttest_ind(a, b, equal_var=False).confidence_interval())

    @pytest.mark.parametrize(
        ("first", "second", "defined"), [(2, 5, True), (1, 2, True), (0, 5, False)]
    )
    def test_a_group_of_two_or_none_leaves_no_interval(
        self, first: int, second: int, defined: bool
    ) -> None:
        a, b = runs(8, first, 40), runs(9, second, 40)
        found = difference_of_groups(a, b)
        assert np.isnan(ends(found)).all()
        assert np.isfinite(found.mean) == defined

    def test_shared_instances_cancel(self) -> None:
        a = runs(8, 5, 80, between=0.0)
        found = difference_of_groups(a + 0.25, a[::-1])
        apart = seeds_then_instances(a)
        assert found.mean == pytest.approx(0.25)
        assert found.high - found.low < 0.5 * (apart.high - apart.low)


@pytest.mark.parametrize(
    ("sd", "sizes"),
    [
        *((0.03, (3,)), (0.03, (10,)), (0.15, (5,))),
        (0.15, (10, 3)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.03, (3, 5)), (0.15, (5, 5)))),
    ],
)
def test_coverage_is_nominal(
    sd: float, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A percentile bootstrap of seeds and texts holds the truth in .76 to .95."""
    monkeypatch.setattr(_NUMBER, 50)
    random, held = np.random.default_rng(sum(sizes)), 0
    measure: Any = seeds_then_instances if len(sizes) == 1 else difference_of_groups
    for _ in range(STUDIES):
        texts = 0.2 + random.normal(0, 0.1, 80)
        effects = (random.normal(0, sd, (seeds, 1)) for seeds in sizes)
        groups = [effect + texts + random.normal(0, 0.2, (len(effect), 80)) for effect in effects]
        found = measure(*groups)
        held += found.low <= 0.2 * (len(sizes) == 1) <= found.high
    assert 0.93 <= held / STUDIES <= 0.97


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_coverage_of_skewed_seeds_is_lower(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module says of exponential effects."""
    monkeypatch.setattr(_NUMBER, 2)
    random, held = np.random.default_rng(0), 0
    for _ in range(STUDIES):
        values = np.repeat(random.exponential(0.15, (seeds, 1)), 2, axis=1)
        found = seeds_then_instances(values)
        held += found.low <= 0.15 <= found.high
    assert 0.86 <= held / STUDIES <= 0.92
