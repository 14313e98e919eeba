"""How different attention can be trained to be at a given cost: curves of adversaries, by seed.

Runs of a grid of lambdas and of several seeds are points (x, y): x, the cost, is the mean total
variation distance of the predictions from the base's, less that of lambda 0 of the same base and
seed; y is the mean JS of attention from the base's as a share of the largest that it could be
(`js_share`). Exclusivity is y at a given x: the larger it is, the less exclusive attention is.
Arrays are NumPy's: records are read without a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import CONFIDENCE, RESAMPLES, percentile_interval

COST = 0.02  # total variation distance above that of lambda 0 at which curves are read

Floats = NDArray[np.float64]


class Runs(NamedTuple):
    """Measures of P runs of adversaries.

    Attributes:
        seeds: Which base and seed each is of, (P,).
        lambdas: Lambda of each, (P,); each seed has one of 0.
        tvd: Mean total variation distance of the predictions from the base's, (P,).
        share: Mean share of the largest JS of attention from the base's, 0 to 1, (P,).
    """

    seeds: NDArray[np.integer]
    lambdas: Floats
    tvd: Floats
    share: Floats


class Curve(NamedTuple):
    """The upper envelope of one seed's runs.

    Attributes:
        cost: Where its corners stand, (K,), ascending from 0.
        share: Its height there, (K,), ascending; straight between corners, and flat after the last.
        end: Cost of the most expensive run, beyond which nothing is known.
    """

    cost: Floats
    share: Floats
    end: float


class Exclusivity(NamedTuple):
    """What adversaries reach at a given cost, the mean over seeds, or a difference of two such.

    Attributes:
        value: The mean. A censored seed, whose curve ends before the cost, counts with the height
            at which it ends: `value` is a lower bound then, and, of a difference, NaN.
        low: Lower end of the interval, with censored seeds as in `value`.
        high: Upper end, with censored seeds counted as 1, the most there is.
        seeds: Number of seeds.
        censored: How many of them are censored.
    """

    value: float
    low: float
    high: float
    seeds: int
    censored: int


def exclusivity_curve(lambdas: Floats, tvd: Floats, share: Floats) -> Curve:
    """The curve of one seed, which never falls.

    A corner is a run of a larger share than every run that costs as much or less. The straight
    lines between corners are attained by taking either run for each instance at random. Corners
    below a line between others stay: a run whose training collapsed, far to the right, would else
    lift all before it.

    Args:
        lambdas: Of each run, (P,); several runs of lambda 0 are averaged.
        tvd: Mean total variation distance of each, (P,); NaN leaves a run out. A run that costs
            less than lambda 0 counts with a cost of 0.
        share: Mean share of each, (P,); NaN leaves a run out.

    Raises:
        InputError: There is no run of lambda 0 that has both measures.

    Example:
        >>> curve = exclusivity_curve(
        ...     np.array([0, 1, 2]), np.array([0.1, 0.15, 0.3]), np.array([0.2, 0.6, 0.5])
        ... )
        >>> curve.cost.round(2).tolist(), curve.share.tolist(), round(curve.end, 2)
        ([0.0, 0.05], [0.2, 0.6], 0.2)
    """
    defined = ~(np.isnan(tvd) | np.isnan(share))
    control, others = defined & (lambdas == 0), defined & (lambdas != 0)
    if not control.any():
        raise InputError("a curve of adversaries needs a run of lambda 0 of each base and seed.")
    above = np.maximum(tvd[others] - tvd[control].mean(), 0.0)
    cost = np.concatenate([[0.0], above])
    height = np.concatenate([[share[control].mean()], share[others]])
    order = np.lexsort((-height, cost))  # of equal costs the largest share comes first
    cost, height = cost[order], height[order]
    corner = height > np.maximum.accumulate(np.concatenate([[-np.inf], height[:-1]]))
    return Curve(cost[corner], height[corner], float(cost[-1]))


def exclusivity(
    runs: Runs,
    *,
    at: float = COST,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Exclusivity:
    """Exclusivity: the share at a cost, read from each seed's curve, and its mean over seeds.

    Seeds are not pooled into one envelope: the largest of more runs is larger by chance alone, and
    where the training of some collapses, the mean run of a lambda is one that no run is near. What
    is left of that bias grows with the noise of a run: compare curves of the same grid of lambdas.

    The interval is a percentile one over resamples of the seeds, each with its whole curve; with few
    seeds it is too narrow.

    Args:
        runs: The runs of all seeds.
        at: The cost, above 0.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Raises:
        InputError: A seed has no run of lambda 0, or `at` is not above 0.
    """
    bounds = _bounds(runs, at)
    chosen = np.random.default_rng(seed).integers(0, len(bounds), (resamples, len(bounds)))
    least, most = bounds[chosen].mean(axis=1).T
    low, high = percentile_interval(least, confidence)[0], percentile_interval(most, confidence)[1]
    censored = int((bounds[:, 0] < bounds[:, 1]).sum())
    return Exclusivity(float(bounds[:, 0].mean()), low, high, len(bounds), censored)


def exclusivity_difference(
    a: Runs,
    b: Runs,
    *,
    at: float = COST,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Exclusivity:
    """Exclusivity of runs a less that of runs b, with an interval over the seeds of both.

    Seeds are drawn apart, as by `difference_of_groups`: models of different targets share no more
    than a number. In `low` a's censored seeds count as they end and b's as 1, in `high` the other
    way round. Arguments and errors are those of `exclusivity`.
    """
    first, second = _bounds(a, at), _bounds(b, at)
    random, drawn = np.random.default_rng(seed), []
    for bounds in (first, second):
        chosen = random.integers(0, len(bounds), (resamples, len(bounds)))
        drawn.append(bounds[chosen].mean(axis=1).T)
    (least, most), (other_least, other_most) = drawn
    low, _ = percentile_interval(least - other_most, confidence)
    _, high = percentile_interval(most - other_least, confidence)
    censored = sum(int((bounds[:, 0] < bounds[:, 1]).sum()) for bounds in (first, second))
    value = np.nan if censored else first[:, 0].mean() - second[:, 0].mean()
    return Exclusivity(float(value), low, high, len(first) + len(second), censored)


def _bounds(runs: Runs, at: float) -> Floats:
    """Least and largest share of each seed at the cost, (S, 2): equal where it is not censored."""
    if not at > 0:
        raise InputError(f"curves of adversaries are read at {at}, but a cost is above 0.")
    found = []
    for name in np.unique(runs.seeds):
        own = runs.seeds == name
        curve = exclusivity_curve(runs.lambdas[own], runs.tvd[own], runs.share[own])
        least = np.interp(at, curve.cost, curve.share)
        found.append((least, least if curve.end >= at else 1.0))
    return np.array(found)
