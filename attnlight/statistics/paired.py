"""Comparisons of two measures, or of two groups of runs, on the same instances.

Arrays are NumPy's, as read from records. NaN marks undefined values; an instance counts as a
complete pair if both values are defined. `clusters` is the record's `index` in ascending order: the
tokens of a sentence are not independent, so intervals resample whole clusters. The p-values treat
pairs as independent; where rows are tokens, rely on the intervals.
"""

from itertools import combinations
from string import ascii_letters
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import MeanInterval, divide, percentile_interval, resampled_rows

DRAWS = 10_000
_BLOCK = 1 << 22  # signs drawn at once
_ROUNDING = 1e-9  # of the sum of all sizes: differences of sums that are equal but for rounding


class TestResult(NamedTuple):
    """A two-sided significance test."""

    statistic: float  # the test's statistic; NaN where there is no pair
    p_value: float  # its p-value, 0 to 1; NaN where there is no pair
    n: int  # complete pairs


TestResult.__test__ = False  # type: ignore[attr-defined]  # tells pytest that this is no test class
_NO_PAIR = TestResult(np.nan, np.nan, 0)


def paired_wilcoxon(x: ArrayLike, y: ArrayLike) -> TestResult:
    """Wilcoxon's signed-rank test of x against y, as `scipy.stats.wilcoxon` computes it.

    Pairs without a difference are dropped before ranking (Wilcoxon 1945, `zero_method="wilcox"`),
    as McNemar's test drops concordant pairs: many instances need one removal under any ranking and
    carry no information on which ranking is better. If all differences are zero, p is 1. The
    columns are (R,), NaN where undefined. The statistic is the smaller sum of signed ranks; zeros
    are complete pairs, too.
    """
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        differences = np.subtract(x, y, dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    if not differences.any():
        return TestResult(0.0, 1.0, len(differences)) if len(differences) else _NO_PAIR
    from scipy.stats import wilcoxon

    result = wilcoxon(differences[differences != 0])
    return TestResult(float(result.statistic), float(result.pvalue), len(differences))


def mcnemar(first: ArrayLike, second: ArrayLike) -> TestResult:
    """McNemar's test of two binary columns (R,): exact, binomial on the discordant pairs.

    Serrano & Smith (2019, section 4) test whether erasing the item of highest attention flips more
    decisions than erasing another one. Values are bool, or 0 and 1 with NaN where undefined. The
    statistic is the smaller number of discordant pairs; without any p is 1.
    """
    one, other, paired = _yes_no(first, second)
    pairs = int(paired.sum())
    fewer, more = sorted(int((paired & (a & ~b)).sum()) for a, b in ((one, other), (other, one)))
    if not more:
        return TestResult(0.0, 1.0, pairs) if pairs else _NO_PAIR
    from scipy.stats import binomtest

    return TestResult(float(fewer), float(binomtest(fewer, fewer + more).pvalue), pairs)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's (1979) adjusted p-values, which control the family-wise error rate.

    They are (M,) and at most 1; NaN stays NaN and is not counted.
    """
    adjusted = np.array(p_values, dtype=np.float64)
    order = np.argsort(adjusted)[: np.count_nonzero(~np.isnan(adjusted))]  # NaN comes last
    steps = np.maximum.accumulate(adjusted[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def ratio_of_shares(a: ArrayLike, b: ArrayLike, clusters: NDArray[np.int64]) -> MeanInterval:
    """Ratio of the frequencies of a and b over complete pairs, with a bootstrap interval.

    Serrano & Smith (2019, section 4) report such ratios of decision flips. The ratio is infinite if
    b never occurs, and so may be the upper end of its interval; it is NaN if neither ever occurs.
    Columns are those of `mcnemar`, clusters those of `bootstrap_means`. The complete pairs are
    `defined`.
    """
    a_holds, b_holds, paired = _yes_no(a, b)
    complete = np.where(paired[:, None], np.stack([a_holds, b_holds], axis=1), np.nan)
    replicates, observed = resampled_rows(complete, clusters)
    # Percentiles of a / (a + b), which is finite and increases with the ratio, transformed back.
    low, high = percentile_interval(divide(replicates[:, 0], replicates[:, 0] + replicates[:, 1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.array([observed[0], low, high]) / np.array([observed[1], 1 - low, 1 - high])
    ratio, low, high = ratios.tolist()
    return MeanInterval(ratio, low, high, int(observed[2]))


def _yes_no(
    first: ArrayLike, second: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which values of each column are true and which pairs are complete, each (R,)."""
    columns = np.stack([np.asarray(x, dtype=np.float64) for x in (first, second)])
    undefined = np.isnan(columns)
    invalid = ~(undefined | (columns == 0) | (columns == 1))
    if invalid.any():
        raise InputError(f"a yes/no column holds {columns[invalid][0]:g}; expected 0, 1 or NaN.")
    return columns[0] == 1, columns[1] == 1, ~(undefined[0] | undefined[1])


def paired_permutation_tests(
    values: NDArray[np.floating], clusters: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference in mean of every two columns, paired by row.

    If two columns do not differ, their values may be exchanged in any cluster, all its rows
    together, which changes the sign of the cluster's difference. The p-value is the share of such
    exchanges whose difference is at least as large as the observed one: of all of them up to
    10,000, else of so many random ones, which all pairs share, and the observed one. Values (R, M)
    are all defined, the cluster of each row, (R,), ascends; the result is (M, M), symmetric, 1 on
    the diagonal.
    """
    sums = np.add.reduceat(values, np.flatnonzero(np.diff(clusters, prepend=-1)), dtype=np.float64)
    total = sums.sum(axis=0)
    least = np.abs(total[:, None] - total) - _ROUNDING * np.abs(sums).sum()
    size, random = len(sums), np.random.default_rng(0)
    exact = 2**size <= DRAWS
    number, reached = 2**size if exact else DRAWS, np.zeros_like(least)
    for start in range(0, number, block := max(1, _BLOCK // size)):
        count = min(block, number - start)
        if exact:
            exchanged = np.arange(start, start + count)[:, None] >> np.arange(size) & 1
        else:
            exchanged = random.integers(0, 2, (count, size), dtype=np.int8)
        signed = (1.0 - 2.0 * exchanged) @ sums  # (count, M)
        for i, column in enumerate(signed.T):
            reached[i] += (np.abs(column[:, None] - signed) >= least[i]).sum(axis=0)
    p_values: NDArray[np.float64] = reached / number if exact else (reached + 1) / (number + 1)
    return p_values


def shared_letters(apart: NDArray[np.bool_]) -> list[str]:
    """Letters of M columns, such that two share a letter exactly if they are not told apart.

    A letter stands for a largest set of columns of which no two are told `apart`, (M, M), symmetric
    (Piepho 2004); letters are in the order of the first columns of their sets.
    """
    groups = [frozenset(range(len(apart)))]
    for pair in combinations(range(len(apart)), 2):
        if apart[pair]:
            split = {
                part
                for group in groups
                for part in ([group - {one} for one in pair] if group >= {*pair} else [group])
            }
            groups = [group for group in split if not any(group < other for other in split)]
    letters = [""] * len(apart)
    for number, group in enumerate(sorted(groups, key=sorted)):
        letter = ascii_letters[number] if number < len(ascii_letters) else f"({number + 1})"
        for member in group:
            letters[member] += letter
    return letters
