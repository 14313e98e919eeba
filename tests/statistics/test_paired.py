"""Paired comparisons against SciPy, naive restatements, hand-computed cases and known truths."""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attnlight.errors import InputError
from attnlight.statistics.paired import (
    holm,
    mcnemar,
    paired_permutation_tests,
    paired_wilcoxon,
    ratio_of_shares,
    shared_letters,
)

NAN = math.nan


def with_gaps(seed: int, size: int = 200) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two related columns of small counts, so that many differ by nothing, a tenth undefined."""
    random = np.random.default_rng(seed)
    x = random.poisson(3, size).astype(float)
    y = x + random.integers(-1, 3, size)
    x[random.random(size) < 0.1] = NAN
    y[random.random(size) < 0.1] = NAN
    return x, y


class TestWilcoxon:
    @pytest.mark.parametrize("size", [200, 12])
    def test_equals_scipy_on_complete_pairs_that_differ(self, size: int) -> None:
        x, y = with_gaps(0, size)
        kept = ~np.isnan(x) & ~np.isnan(y)
        expected = stats.wilcoxon(x[kept], y[kept], zero_method="wilcox")
        found = paired_wilcoxon(x, y)
        assert found.statistic == expected.statistic
        assert found.p_value == pytest.approx(expected.pvalue, rel=1e-12)
        assert found.n == kept.sum()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        ("x", "y", "expected"),
        [
            ([1.0, 2.0, NAN], [1.0, 2.0, 5.0], (0.0, 1.0, 2)),  # no difference
            ([1.0], [0.0], (0.0, 1.0, 1)),  # one pair tells nothing
            *((*xy, (NAN, NAN, 0)) for xy in (([], []), ([NAN, 1], [1, NAN]), ([math.inf],) * 2)),
        ],
    )
    def test_of_few_pairs(self, x: Any, y: Any, expected: tuple[float, float, int]) -> None:
        assert paired_wilcoxon(x, y) == pytest.approx(expected, nan_ok=True)


class TestMcNemar:
    def test_equals_the_binomial_sum(self) -> None:
        first = [1, 1, 1, 1, 1, 1, 0, 0, 1, 0, NAN, 1]
        second = [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, NAN]
        # Six of seven discordant pairs for the first: 2 (C(7,0) + C(7,1)) / 2^7.
        assert mcnemar(first, second) == (1.0, pytest.approx(2 * 8 / 128), 10)

    def test_balanced_and_concordant_pairs(self) -> None:
        assert mcnemar([1, 0], [0, 1]) == (1.0, 1.0, 2)
        assert mcnemar([1, 0, 1], [1, 0, NAN]) == (0.0, 1.0, 2)
        assert np.isnan(mcnemar([NAN], [1.0]).p_value)

    @pytest.mark.parametrize("strange", [-1.0, 2.0, 0.5, math.inf])
    def test_counts_and_sentinels_are_refused(self, strange: float) -> None:
        with pytest.raises(InputError, match=f"holds {strange:g}; expected 0, 1 or NaN"):
            mcnemar([1.0, strange], [0.0, 1.0])


class TestAdjusted:
    P = np.array([0.04, NAN, 0.01, 0.03, 1.0, 0.03, NAN, 0.2])

    def test_holm_equals_its_definition(self) -> None:
        defined = sorted(self.P[~np.isnan(self.P)])
        expected = [
            min(1.0, max((len(defined) - j) * q for j, q in enumerate(defined) if q <= p))
            if not np.isnan(p)
            else NAN
            for p in self.P
        ]
        np.testing.assert_allclose(holm(self.P), expected, rtol=1e-15)

    def test_edges(self) -> None:
        given = self.P.copy()
        holm(self.P)
        np.testing.assert_array_equal(self.P, given)
        assert holm([0.03]) == [0.03]
        assert len(holm([])) == 0
        assert np.isnan(holm([NAN, NAN])).all()
        assert holm([0.0, 1.0]).tolist() == [0.0, 1.0]


def flags(seed: int, size: int = 400) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    first = (random.random(size) < 0.4).astype(float)
    second = np.where(random.random(size) < 0.3, first, random.random(size) < 0.2).astype(float)
    first[::17] = NAN
    second[::13] = NAN
    return first, second


class TestRatio:
    def test_interval_equals_resampled_ratios(self) -> None:
        first, second = flags(4)
        found = ratio_of_shares(first, second, np.arange(400))
        pairs = np.stack([first, second], axis=1)
        pairs = pairs[~np.isnan(pairs).any(axis=1)]
        assert found.mean == pytest.approx(pairs[:, 0].sum() / pairs[:, 1].sum())
        assert found.defined == len(pairs)
        random = np.random.default_rng(9)
        draws = pairs[random.integers(0, len(pairs), (4_000, len(pairs)))].sum(axis=1)
        low, high = np.quantile(draws[:, 0] / draws[:, 1], [0.025, 0.975])
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.35 * (high - low) / 3.92)

    @pytest.mark.filterwarnings("error")
    def test_may_be_infinite_or_undefined(self) -> None:
        rows = np.arange(60)
        never, often = np.zeros(60), rows % 2 == 0
        assert ratio_of_shares(often, never, rows) == (math.inf, math.inf, math.inf, 60)
        assert ratio_of_shares(never, often, rows) == (0.0, 0.0, 0.0, 60)
        assert np.isnan(ratio_of_shares(never, never, rows)[:3]).all()
        # One instance holds b: a third of the resamples miss it.
        rare = ratio_of_shares(often, rows == 0, rows)
        assert rare.mean == 30
        assert 0 < rare.low < 30
        assert rare.high == math.inf
        assert ratio_of_shares([NAN], [1.0], np.arange(1)).defined == 0


def mean_difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    found: np.ndarray = np.mean(x - y, axis=axis)
    return found


@pytest.mark.parametrize("size", [2, 4, 9])
def test_few_instances_equal_scipy(size: int) -> None:
    values = np.random.default_rng(size).normal(size=(size, 3)).round(1)
    found = paired_permutation_tests(values, np.arange(size))
    for i, j in combinations(range(3), 2):
        expected = stats.permutation_test(
            (values[:, i], values[:, j]), mean_difference, permutation_type="samples"
        )
        assert found[i, j] == found[j, i] == pytest.approx(expected.pvalue)
    assert np.diag(found).tolist() == [1, 1, 1]


def test_rows_of_a_cluster_are_exchanged_together() -> None:
    random = np.random.default_rng(0)
    clusters = np.array([3, 3, 3, 5, 8, 8, 11, 12])
    values = random.normal(size=(8, 2)) + 0.8 * random.normal(size=(13, 2))[clusters]
    observed = abs((values[:, 0] - values[:, 1]).sum())
    sizes = []
    for signs in product([1, -1], repeat=5):
        sign = dict(zip([3, 5, 8, 11, 12], signs, strict=True))
        moved = sum(
            sign[int(c)] * (x - y) for c, (x, y) in zip(clusters, values.tolist(), strict=True)
        )
        sizes.append(abs(moved) >= observed - 1e-12)
    found = paired_permutation_tests(values, clusters)
    assert found[0, 1] == pytest.approx(np.mean(sizes))
    assert found[0, 1] != pytest.approx(paired_permutation_tests(values, np.arange(8))[0, 1])


def test_many_instances_are_near_the_exact_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 instances, drawn rather than enumerated; with a million of rows, in blocks."""
    values = np.random.default_rng(3).normal([0, 0.5, 0.1], 1, size=(12, 3))
    exact = paired_permutation_tests(values, np.arange(12))
    monkeypatch.setattr("attnlight.statistics.paired.DRAWS", 4_000)
    drawn = paired_permutation_tests(values, np.arange(12))
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(0.25 / 4_000))
    assert (drawn != exact).any()


def test_equal_columns_are_not_told_apart_despite_rounding() -> None:
    x = np.random.default_rng(0).random(200)
    values = np.stack([x, x[::-1][::-1] + 0.1 - 0.1, x + 1], axis=1)
    found = paired_permutation_tests(values, np.arange(200))
    assert found[0, 1] == 1
    assert found[0, 2] == 1 / 10_001


@pytest.mark.parametrize("seed", range(20))
def test_two_share_a_letter_exactly_if_not_told_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 8))
    apart = np.triu(random.random((size, size)) < random.random(), 1)
    apart = apart | apart.T
    letters = shared_letters(apart)
    for i, j in combinations(range(size), 2):
        assert bool({*letters[i]} & {*letters[j]}) == (not apart[i, j])
    # A letter for each set that no further column could join, by trying all sets.
    sets = [
        {*members}
        for length in range(1, size + 1)
        for members in combinations(range(size), length)
        if not apart[np.ix_(members, members)].any()
    ]
    largest = [one for one in sets if not any(one < other for other in sets)]
    used = {letter for own in letters for letter in own}
    carried = [{i for i in range(size) if letter in letters[i]} for letter in sorted(used)]
    assert sorted(map(sorted, carried)) == sorted(map(sorted, largest))


def test_letters_by_hand() -> None:
    """Three in a row, of which only the ends differ; and none at all."""
    apart = np.zeros((3, 3), dtype=bool)
    apart[0, 2] = apart[2, 0] = True
    assert shared_letters(apart) == ["a", "ab", "b"]
    assert shared_letters(np.zeros((2, 2), dtype=bool)) == ["a", "a"]
    assert shared_letters(~np.eye(60, dtype=bool))[50:53] == ["Y", "Z", "(53)"]
