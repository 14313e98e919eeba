"""Bootstrap intervals, and resampled ratios and F1, against naive loops."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attnlight.statistics import bootstrap as statistics
from attnlight.statistics.bootstrap import (
    MeanInterval,
    bootstrap_means,
    mean_intervals,
    resampled_ratios,
    resampled_sums,
)
from attnlight.statistics.f1 import resampled_f1

Array = NDArray[np.floating]
Integers = NDArray[np.int64]


def naive(values: Array, clusters: Integers, resamples: int, seed: int) -> Array:
    """Means of resampled clusters, one draw and one row at a time."""
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(clusters.tolist()))
    rows = {name: values[clusters == name] for name in names}
    means = np.empty(resamples)
    for k in range(resamples):
        drawn = [rows[names[j]] for j in random.integers(len(names), size=len(names))]
        pooled = np.concatenate(drawn)
        means[k] = np.mean(pooled[~np.isnan(pooled)])
    return means


def clustered(seed: int, groups: int = 80) -> tuple[Array, Integers]:
    """Rows of uneven clusters that share an effect, a tenth of them undefined."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, groups)
    clusters = np.repeat(np.sort(random.choice(10_000, groups, replace=False)), sizes)
    values = np.repeat(random.normal(size=groups), sizes) + 0.3 * random.normal(size=sizes.sum())
    values[random.random(len(values)) < 0.1] = np.nan
    return values, clusters


def one(
    values: Array,
    clusters: Integers | None = None,
    *,
    in_memory: bool = True,
    resamples: int = 1_000,
    seed: int = 0,
) -> MeanInterval:
    clusters = np.arange(len(values)) if clusters is None else clusters
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "RESAMPLES", resamples)
        sums = resampled_sums([(values[:, None], clusters)], 1, seed=seed, in_memory=in_memory)
    return mean_intervals(*sums)[0]


@pytest.mark.parametrize("in_memory", [True, False])
class TestInterval:
    def test_equals_a_naive_loop_within_monte_carlo_error(self, in_memory: bool) -> None:
        values, clusters = clustered(0, groups=400)
        found = one(values, clusters, in_memory=in_memory, resamples=8_000)
        drawn = naive(values, clusters, 4_000, seed=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        # Standard error of a 95 % tail quantile of K normal draws: 2.67 s / sqrt(K); K = 4,000.
        tolerance = 4 * 2.67 * drawn.std() / np.sqrt(4_000)
        assert found.low == pytest.approx(low, abs=tolerance)
        assert found.high == pytest.approx(high, abs=tolerance)
        assert tolerance < 0.6 * (high - low)

    def test_pieces_do_not_show(self, in_memory: bool) -> None:
        values, clusters = clustered(2, groups=60)
        both = np.stack([values, np.abs(values)], axis=1)
        whole = mean_intervals(*resampled_sums([(both, clusters)], 2, in_memory=in_memory))
        # Every cut, so that most fall inside a cluster; one cluster over three pieces; nothing.
        longest = np.bincount(np.unique(clusters, return_inverse=True)[1]).argmax()
        inside = int(np.searchsorted(clusters, np.unique(clusters)[longest]))
        cuts = [list(range(1, len(values))), [inside + 1, inside + 2], [0, 17, 17, len(values)]]
        for cut in cuts:
            pieces = zip(np.split(both, cut), np.split(clusters, cut), strict=True)
            parts = mean_intervals(*resampled_sums(pieces, 2, in_memory=in_memory))
            if in_memory:
                np.testing.assert_allclose(parts, whole, rtol=1e-12)
            else:  # draws differ with the pieces, the mean and the count do not
                np.testing.assert_allclose(parts, whole, atol=0.12)
                kept = [[(x.mean, x.defined) for x in found] for found in (parts, whole)]
                np.testing.assert_allclose(*kept, rtol=1e-12)

    def test_undefined_values_are_left_out(self, in_memory: bool) -> None:
        values = np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, 2.0], [4.0, np.nan, 2.0]])
        sums = resampled_sums([(values, np.arange(3))], 3, in_memory=in_memory)
        first, none, equal = mean_intervals(*sums)
        assert first == MeanInterval(2.5, 1.0, 4.0, 2)
        assert np.isnan([none.mean, none.low, none.high]).all()
        assert none.defined == 0
        assert equal == MeanInterval(2.0, 2.0, 2.0, 3)

    def test_nothing_at_all(self, in_memory: bool) -> None:
        for pieces in ([], [(np.empty((0, 1)), np.empty(0, dtype=np.int64))]):
            (found,) = mean_intervals(*resampled_sums(pieces, 1, in_memory=in_memory))
            assert np.isnan([found.mean, found.low, found.high]).all()
            assert found.defined == 0

    def test_single_precision_is_summed_in_double(self, in_memory: bool) -> None:
        values = np.full(300_000, 0.1, dtype=np.float32)
        found = one(values, np.arange(300_000) // 3_000, in_memory=in_memory, resamples=20)
        assert found.mean == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_many_clusters_are_weighed_by_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = clustered(4)
    groups = len(np.unique(clusters))
    for most, in_memory in ((groups, True), (groups - 1, False)):
        monkeypatch.setattr(statistics, "MAX_EXACT_CLUSTERS", most)
        expected = [one(values, clusters, in_memory=in_memory)]
        assert bootstrap_means(values[:, None], clusters) == expected


def test_poisson_weights_have_the_distribution_of_poisson() -> None:
    table = statistics._POISSON
    shares = np.bincount(table.astype(int), minlength=9) / len(table)
    np.testing.assert_allclose(shares, stats.poisson(1).pmf(range(9)), atol=1 / 65_536)
    assert table.mean() == pytest.approx(1, abs=2e-5)
    assert table.var() == pytest.approx(1, abs=2e-4)


def loop(numerators: list[float], denominators: list[float], chosen: list[int]) -> float:
    """The ratio of two sums over the instances of which both are known."""
    pairs = [(numerators[k], denominators[k]) for k in chosen]
    pairs = [pair for pair in pairs if not any(map(math.isnan, pair))]
    bottom = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / bottom if bottom > 0 else math.nan


def test_ratios_equal_a_loop_in_every_resample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 25)
    random = np.random.default_rng(4)
    numerators, denominators = random.random((30, 3)), random.integers(0, 9, (30, 3)).astype(float)
    numerators[3, 0] = denominators[8, 1] = np.nan
    denominators[:, 2] = 0.0
    held, drawn = resampled_ratios(numerators, denominators)
    random = np.random.default_rng(0)
    rows = [random.integers(0, 30, 30).tolist() for _ in range(25)]
    for column in range(3):
        own = numerators[:, column].tolist(), denominators[:, column].tolist()
        assert held[column] == pytest.approx(loop(*own, list(range(30))), nan_ok=True)
        expected = [loop(*own, chosen) for chosen in rows]
        assert drawn[:, column] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(held[2])


def naive_f1(label: Integers, prediction: Integers, classes: int) -> float:
    """Precision and recall of each class, counted one by one."""
    found = []
    for judged in [1] if classes == 2 else range(classes):
        pairs = [(int(y), int(p)) for y, p in zip(label, prediction, strict=True) if y >= 0]
        hits = sum(y == p == judged for y, p in pairs)
        true, called = (sum(pair[k] == judged for pair in pairs) for k in (0, 1))
        if hits:
            precision, recall = hits / called, hits / true
            found.append(2 * precision * recall / (precision + recall))
        elif true or called:
            found.append(0.0)
    return float(np.mean(found)) if found else float("nan")


@pytest.mark.parametrize("classes", [2, 4])
def test_f1_equals_a_loop_in_every_resample(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 60)
    random = np.random.default_rng(3)
    label = random.integers(0, classes, 40)
    guesses = random.integers(0, classes, (5, 40))
    runs = np.where(random.random((5, 40)) < 0.7, label, guesses)
    label[5] = runs[0, 2] = -1  # texts without a label, and not measured
    held, drawn = resampled_f1(runs, label, classes)
    expected = [naive_f1(label, run, classes) for run in runs]
    np.testing.assert_allclose(held, expected, rtol=1e-12)
    random = np.random.default_rng(0)
    assert len(drawn) == 60
    for found in drawn:
        rows = random.integers(0, 40, 40)
        expected = [naive_f1(label[rows], run[rows], classes) for run in runs]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_class_that_is_nowhere_has_no_f1() -> None:
    label, runs = np.array([0, 0, 2]), np.array([[0, 0, 2], [0, 2, 2], [0, 1, 2]])
    # By hand: 1 and 1; 2/3 and 2/3; 2/3, 0 and 1.
    expected = [1.0, 2 / 3, 5 / 9]
    np.testing.assert_allclose(resampled_f1(runs, label, 3)[0], expected)
    nothing = resampled_f1(np.array([[0, 0]]), np.array([0, -1]), 2)[0]
    assert np.isnan(nothing).all()
