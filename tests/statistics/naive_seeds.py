"""Half-widths of intervals over seeds and instances, by loops over their definition."""

import math
import statistics
from collections.abc import Sequence
from itertools import combinations, product

from scipy.stats import norm, t

# Value of each seed, and the values of all seeds in each resample of the instances.
Group = tuple[Sequence[float], Sequence[Sequence[float]]]


def covariance(first: Group, i: int, second: Group, j: int) -> float:
    """Covariance of two seeds over the resamples in which both are defined."""
    pairs = [(one[i], other[j]) for one, other in zip(first[1], second[1], strict=True)]
    pairs = [pair for pair in pairs if not any(map(math.isnan, pair))]
    return statistics.covariance(*zip(*pairs, strict=True))


def shared_variance(group: Group) -> float:
    """Mean covariance of two seeds; of a single seed its variance."""
    if len(group[0]) == 1:
        return covariance(group, 0, group, 0)
    pairs = combinations(range(len(group[0])), 2)
    return statistics.mean(covariance(group, i, group, j) for i, j in pairs)


def half_width(*groups: Group) -> float:
    """sqrt(t^2 V_S + z^2 V_B) of a mean or, of two groups, of a difference."""
    several = [values for values, _ in groups if len(values) > 1]
    parts = [(statistics.variance(values) / len(values), len(values)) for values in several]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / (count - 1) for part, count in parts)
    shared = sum(map(shared_variance, groups))
    if len(groups) == 2:
        first, second = groups
        pairs = product(range(len(first[0])), range(len(second[0])))
        shared -= 2 * statistics.mean(covariance(first, i, second, j) for i, j in pairs)
    return math.sqrt(
        t.ppf(0.975, freedom) ** 2 * variance + norm.ppf(0.975) ** 2 * max(0.0, shared)
    )
