"""Means over several seeds, with intervals that generalise to an architecture, not just one run.

The runs of a group are tested on the same instances, so that the mean over S seeds varies for two
reasons. Seeds vary by training and by their own errors: V_S = var(seeds) / S, estimated with S - 1
degrees of freedom. Instances are easy or hard for all seeds alike: V_B is the mean covariance of two
seeds over bootstrap resamples of the instances (0 if negative). The half-width adds both in
quadrature, as the method of variance estimates recovery does (Zou & Donner 2008):
sqrt(t^2 V_S + z^2 V_B) with Student's t and the normal quantile z. For a difference of two groups
V_S is the sum of both with Welch's degrees of freedom, and V_B the sum of both less twice the mean
covariance of a seed of one group with a seed of the other.

All seeds have equal weight, however many of their values are defined. One seed leaves a percentile
interval over instances, about that run alone; likewise a group of one seed in a difference. Two
seeds are too few for an interval. Coverage is nominal where seeds vary normally; where they are
strongly skewed it is lower (.87 to .90 instead of .95 for 3 to 10 seeds with exponential effects).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import (
    CONFIDENCE,
    Floats,
    defined_mean,
    divide,
    percentile_interval,
    resampled_rows,
)

# A statistic of each of S seeds, (S,), and its B bootstrap replicates over instances, (B, S); NaN
# where undefined. All seeds share the instances of a resample.
Resampled = tuple[Floats, Floats]
UNBOUNDED = (-np.inf, np.inf)


class SeedInterval(NamedTuple):
    """A mean over seeds, or a difference of two such means, with its interval."""

    mean: float  # the mean or difference; NaN if a group has no defined seed
    low: float  # lower end of the interval; NaN without one, as with two seeds
    high: float  # upper end
    values: tuple[float, ...]  # value of each defined seed; empty for a difference

    @property
    def std(self) -> float:
        """Standard deviation over seeds (n - 1); NaN for one seed and for a difference."""
        if len(self.values) < 2:
            return float("nan")
        return float(np.std(np.subtract(self.values, self.values[0]), ddof=1))  # 0 of equal values


def seeds_then_instances(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
) -> SeedInterval:
    """Mean over seeds of each seed's mean, with a 95 % interval over seeds and instances.

    Values (S, n) of S seeds are NaN where undefined; the cluster of each instance, (n,), ascends,
    None: one per instance. The interval is clipped to `bounds`, the range of the measure.
    """
    return seed_interval(resampled_means(values, clusters), bounds=bounds)


def difference_of_groups(
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    bounds: tuple[float, float] = UNBOUNDED,
) -> SeedInterval:
    """Mean of group a minus that of group b, with an interval over seeds and shared instances.

    Seeds of the two groups are independent, since equal seeds of different architectures are
    unrelated. `a` (S1, n) and `b` (S2, n) are values on the same instances; other arguments are those
    of `seeds_then_instances`.
    """
    return seed_interval(*(resampled_means(x, clusters) for x in (a, b)), bounds=bounds)


def seed_interval(
    group: Resampled, less: Resampled | None = None, *, bounds: tuple[float, float] = UNBOUNDED
) -> SeedInterval:
    """Mean of a statistic over seeds, minus that over the seeds `less`, on the same resamples, if given.

    Further arguments are those of `seeds_then_instances`.
    """
    given = ((*one, ~np.isnan(one[0])) for one in (group, less) if one is not None)
    groups = [(values[known], replicates[:, known]) for values, replicates, known in given]
    values, replicates = zip(*groups, strict=True)
    low, high = bounds
    means = [float(one.mean()) if one.size else math.nan for one in values]
    mean, by_seed, sizes = means[0], tuple(values[0].tolist()), {len(one) for one in values}
    if less is not None:
        mean, by_seed = mean - means[1], ()
        low, high = low - high, high - low
    ends = (math.nan, math.nan)  # if a group has no seed or two
    if sizes == {1}:
        ends = percentile_interval(replicates[0] - (replicates[1] if less is not None else 0.0))
    elif not sizes & {0, 2}:
        from scipy.special import ndtri

        over_instances = ndtri((1 + CONFIDENCE) / 2) * math.sqrt(_shared_variance(replicates))
        half = math.hypot(t_half_width(*values), over_instances)
        ends = (mean - half, mean + half)
    first, last = np.clip(ends, low, high).tolist()
    return SeedInterval(mean, first, last, by_seed)


def t_half_width(*groups: Floats) -> float:
    """Half-width of Student's t interval of a mean, or of Welch's of a difference of means, 95 %.

    Of one or two groups of values (S,); a group of one value is taken as fixed.
    """
    from scipy.special import stdtrit

    variances = [(one.var(ddof=1) / len(one), len(one) - 1) for one in groups if len(one) > 1]
    variance = sum(part for part, _ in variances)
    welch = sum(part**2 / freedom for part, freedom in variances)
    if not welch:
        return 0.0
    return float(stdtrit(variance**2 / welch, (1 + CONFIDENCE) / 2) * np.sqrt(variance))


def _shared_variance(replicates: Sequence[Floats]) -> float:
    """Variance of a mean over seeds, or of a difference of two, that all seeds have in common.

    Of a group of one seed, whose replicates are (B, 1), it is that seed's variance over instances.
    """
    total = np.zeros(())
    for group in replicates:
        covariances = _covariances(group, group)
        if len(covariances) > 1:
            np.fill_diagonal(covariances, np.nan)
        total = total + defined_mean(covariances.ravel())
    if len(replicates) > 1:
        total = total - 2 * defined_mean(_covariances(*replicates).ravel())
    return float(np.maximum(total, 0.0))


def _covariances(a: Floats, b: Floats) -> Floats:
    """Covariance of columns, (S1, S2), over the resamples in which both are defined."""
    first, second = (np.nan_to_num(x - defined_mean(x.T)) for x in (a, b))
    both = (~np.isnan(a)).T.astype(np.float64) @ ~np.isnan(b)
    return divide(first.T @ second, both - 1)


def resampled_means(
    values: NDArray[np.floating], clusters: NDArray[np.int64] | None = None, *, seed: int = 0
) -> Resampled:
    """Mean of each seed's values, (S,), and its bootstrap replicates over instances, (B, S).

    Groups resampled with the same `seed` share the instances of each resample. Arguments are those of
    `seeds_then_instances`.
    """
    replicates, means = (
        divide(*np.split(sums, 2, axis=-1))
        for sums in resampled_rows(values.T, clusters, seed=seed)
    )
    return means, replicates


def mean_of_models(values: Floats, models: Sequence[str]) -> Floats:
    """Mean over the runs that share a trained model, so that models are the units of intervals.

    Five perceptrons guided by one adversary are one sample of an adversary, not five. A statistic
    (..., S) of each run, NaN where undefined, becomes (..., U), one value per model in order of
    first occurrence, NaN where none is defined.

    Example:
        >>> mean_of_models(np.array([1.0, 3.0, 8.0]), ["a", "a", "b"])
        array([2., 8.])
    """
    if len(set(models)) == len(models):
        return values
    names, defined = np.array(models), ~np.isnan(values)
    groups = [names == name for name in dict.fromkeys(models)]
    totals, counts = (
        np.stack([column[..., group].sum(axis=-1) for group in groups], axis=-1)
        for column in (np.where(defined, values, 0.0), defined)
    )
    return divide(totals, counts)
