"""Comparisons of two measures, or of two groups of runs, on the same instances.

Arrays are NumPy's: records are read without a device. NaN marks what is undefined, and an instance
where either side is undefined is no pair. `clusters` is the record's `index` in ascending order:
the tokens of a sentence are not independent, so intervals resample whole clusters. The p-values
take every pair as independent; where rows are tokens, rely on the intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import (
    MeanInterval,
    bootstrap_means,
    divide,
    percentile_interval,
    resampled_rows,
)


class TestResult(NamedTuple):
    """A two-sided significance test.

    Attributes:
        statistic: The test's statistic; NaN where there is no pair.
        p_value: Its p-value, 0 to 1; NaN where there is no pair.
        n: Complete pairs.
    """

    statistic: float
    p_value: float
    n: int


TestResult.__test__ = False  # type: ignore[attr-defined]  # for pytest: no class of tests
_NO_PAIR = TestResult(np.nan, np.nan, 0)


class Contingency(NamedTuple):
    """Shares of the complete pairs of two yes/no columns, which add up to 1.

    Attributes:
        both: Where both hold.
        only_first: Where the first holds alone.
        only_second: Where the second holds alone.
        neither: Where neither holds.
    """

    both: MeanInterval
    only_first: MeanInterval
    only_second: MeanInterval
    neither: MeanInterval


def paired_wilcoxon(x: ArrayLike, y: ArrayLike) -> TestResult:
    """Wilcoxon's signed-rank test of x against y, as `scipy.stats.wilcoxon` computes it.

    Pairs without a difference are dropped before ranking (Wilcoxon 1945, `zero_method="wilcox"`),
    as McNemar's test drops concordant pairs: many instances need one removal under any ranking, and
    these say nothing of which ranking is better. Where all differences are zero p is 1.

    Args:
        x: (R,), NaN where undefined.
        y: (R,).

    Returns:
        The smaller sum of signed ranks, its p-value, and the complete pairs, zeros included.
    """
    with np.errstate(invalid="ignore"):  # the same infinity twice has no difference
        differences = np.subtract(x, y, dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    if not differences.any():
        return TestResult(0.0, 1.0, len(differences)) if len(differences) else _NO_PAIR
    from scipy.stats import wilcoxon

    found = wilcoxon(differences[differences != 0])
    return TestResult(float(found.statistic), float(found.pvalue), len(differences))


def mcnemar(first: ArrayLike, second: ArrayLike) -> TestResult:
    """McNemar's test of two yes/no columns: exact, binomial on the discordant pairs.

    Serrano & Smith (2019, section 4) ask whether erasing the item of highest attention flips more
    decisions than erasing another one.

    Args:
        first: (R,) bool, or 0 and 1 with NaN where undefined.
        second: (R,), likewise.

    Returns:
        The smaller number of discordant pairs, its p-value (1 without discordant pairs), and the
        complete pairs.
    """
    one, other, paired = _yes_no(first, second)
    pairs = int(paired.sum())
    fewer, more = sorted(int((paired & (a & ~b)).sum()) for a, b in ((one, other), (other, one)))
    if not more:
        return TestResult(0.0, 1.0, pairs) if pairs else _NO_PAIR
    from scipy.stats import binomtest

    return TestResult(float(fewer), float(binomtest(fewer, fewer + more).pvalue), pairs)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's (1979) adjusted p-values, which bound the chance of any false rejection.

    Args:
        p_values: (M,); NaN is kept and not counted.

    Returns:
        (M,), at most 1.
    """
    adjusted = np.array(p_values, dtype=np.float64)
    order = np.argsort(adjusted)[: np.count_nonzero(~np.isnan(adjusted))]  # NaN comes last
    steps = np.maximum.accumulate(adjusted[order] * np.arange(len(order), 0, -1))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def contingency(
    first: ArrayLike, second: ArrayLike, clusters: NDArray[np.int64], *, seed: int = 0
) -> Contingency:
    """How often two yes/no columns hold together, with bootstrap intervals.

    Serrano & Smith's (2019, section 4) table of decision flips by the top item and by another one.

    Args:
        first: (R,) bool, or 0 and 1 with NaN where undefined.
        second: (R,), likewise.
        clusters: Cluster of each row, (R,), in ascending order.
        seed: Seed of the resamples.
    """
    one, other, paired = _yes_no(first, second)
    cells = np.stack([one & other, one & ~other, ~one & other, ~one & ~other], axis=1)
    shares = np.where(paired[:, None], cells, np.nan)
    return Contingency(*bootstrap_means(shares, clusters, seed=seed))


def paired_difference(
    x: ArrayLike, y: ArrayLike, clusters: NDArray[np.int64], *, seed: int = 0
) -> MeanInterval:
    """Mean of x - y over complete pairs, with a bootstrap interval.

    Args:
        x: (R,), NaN where undefined.
        y: (R,).
        clusters: Cluster of each row, (R,), in ascending order.
        seed: Seed of the resamples.
    """
    with np.errstate(invalid="ignore"):  # the same infinity twice has no difference
        differences = np.subtract(x, y, dtype=np.float64)
    (found,) = bootstrap_means(differences[:, None], clusters, seed=seed)
    return found


def ratio_of_shares(
    a: ArrayLike, b: ArrayLike, clusters: NDArray[np.int64], *, seed: int = 0
) -> MeanInterval:
    """How many times as often a holds as b, over complete pairs, with a bootstrap interval.

    Serrano & Smith (2019, section 4) state such ratios of decision flips. The ratio is infinite
    where b never holds, and so may be the upper end; it is NaN where neither ever holds.

    Args:
        a: (R,) bool, or 0 and 1 with NaN where undefined.
        b: (R,), likewise.
        clusters: Cluster of each row, (R,), in ascending order.
        seed: Seed of the resamples.

    Returns:
        The ratio as `mean`, its interval, and the complete pairs as `defined`.
    """
    one, other, paired = _yes_no(a, b)
    held = np.where(paired[:, None], np.stack([one, other], axis=1), np.nan)
    drawn, total = resampled_rows(held, clusters, seed=seed)
    # Percentiles of a / (a + b), which is finite and rises with the ratio, then back.
    low, high = percentile_interval(divide(drawn[:, 0], drawn[:, 0] + drawn[:, 1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([total[0], low, high]) / np.array([total[1], 1 - low, 1 - high])
    ratio, low, high = found.tolist()
    return MeanInterval(ratio, low, high, int(total[2]))


def _yes_no(
    first: ArrayLike, second: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Where each holds and where both are defined, each (R,).

    Raises:
        InputError: A value is neither 0 nor 1 nor NaN, such as a count or a sentinel of -1.
    """
    columns = np.stack([np.asarray(x, dtype=np.float64) for x in (first, second)])
    undefined = np.isnan(columns)
    strange = ~(undefined | (columns == 0) | (columns == 1))
    if strange.any():
        raise InputError(f"a yes/no column holds {columns[strange][0]:g}; expected 0, 1 or NaN.")
    return columns[0] == 1, columns[1] == 1, ~(undefined[0] | undefined[1])
