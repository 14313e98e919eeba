"""Divergence that adversarial training reaches at a given cost: curves of adversaries, by seed.

Runs of a grid of lambdas and of several seeds are points (x, y): x, the cost, is the mean total
variation distance of the predictions from the base's, minus that of lambda 0 of the same base and
seed; y is the mean JS of attention from the base's, normalised by its maximum (`normalized_js`).
Exclusivity is y at a given x: the larger it is, the less exclusive attention is. Arrays are
NumPy's, as read from records.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import Floats
from attnlight.statistics.seed_bootstrap import t_half_width

COST = 0.02  # total variation distance above that of lambda 0 at which curves are evaluated
_FEWEST = 3  # seeds of an interval


class Runs(NamedTuple):
    """Measures of P runs of adversaries."""

    seeds: NDArray[np.integer]  # base and seed of each run, as one number, (P,)
    lambdas: Floats  # lambda of each run, (P,); each seed has a run of lambda 0
    tvd: Floats  # mean total variation distance of the predictions from the base's, (P,)
    share: Floats  # mean normalised JS of attention from the base's, 0 to 1, (P,)


class Curve(NamedTuple):
    """The upper envelope of one seed's runs."""

    cost: Floats  # costs at its corners, (K,), ascending from 0
    # Its values there, (K,), ascending; linear between corners, constant after the last.
    share: Floats
    end: float  # cost of the most expensive run, beyond which the curve is not observed


class Exclusivity(NamedTuple):
    """Exclusivity at a given cost, the mean over seeds, or a difference of two such means."""

    # The mean. A censored seed, whose curve ends before the cost, counts with its last value:
    # `value` is then a lower bound and, for a difference, NaN.
    value: float
    # Lower end of the interval, with censored seeds as in `value`; NaN for fewer than three seeds.
    low: float
    high: float  # upper end, with censored seeds counted as 1, the maximum
    seeds: int  # number of seeds
    censored: int  # number of censored seeds


def exclusivity_curve(lambdas: Floats, tvd: Floats, share: Floats) -> Curve:
    """The non-decreasing curve of one seed.

    A corner is a run with a larger share than every run of equal or lower cost. The lines between
    corners are attained by choosing one of two runs at random for each instance. The curve is not
    made concave: a run whose training collapsed, far to the right, would raise everything before
    it. Measures of each run are (P,), and NaN excludes a run; several runs of lambda 0 are
    averaged, and costs below theirs count as 0.

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


def exclusivity(runs: Runs) -> Exclusivity:
    """Exclusivity: the mean over seeds of the share at the cost `COST` on each seed's curve.

    Seeds are not pooled into one envelope: the maximum over more runs is larger by chance alone,
    and if the training of some runs collapses, the mean over runs of a lambda is close to none of
    them. The remaining bias grows with the noise of a run: compare curves of the same grid of
    lambdas.

    The 95 % interval is Student's t over seeds, each with its complete curve, clipped to 0 and 1; other
    instances are not allowed for.
    """
    least, most = _bounds(runs).T
    ends = (least.mean() - _half_width(least), most.mean() + _half_width(most))
    low, high = np.clip(ends, 0, 1).tolist()
    return Exclusivity(float(least.mean()), low, high, len(least), int((least < most).sum()))


def exclusivity_difference(a: Runs, b: Runs) -> Exclusivity:
    """Exclusivity of runs a minus that of runs b, with Welch's interval over the seeds of both.

    Seeds are independent, as in `difference_of_groups`, since equal seeds of different targets are
    unrelated. In `low` a's censored seeds count with their last value and b's as 1, in `high` vice
    versa. Errors are those of `exclusivity`.
    """
    (least, most), (other_least, other_most) = (_bounds(runs).T for runs in (a, b))
    lowest = least.mean() - other_most.mean()
    highest = most.mean() - other_least.mean()
    ends = (lowest - _half_width(least, other_most), highest + _half_width(most, other_least))
    low, high = np.clip(ends, -1, 1).tolist()
    censored = int((least < most).sum() + (other_least < other_most).sum())
    value = float("nan") if censored else float(lowest)
    return Exclusivity(value, low, high, len(least) + len(other_least), censored)


def _half_width(*groups: Floats) -> float:
    fewest = min(len(group) for group in groups)
    return t_half_width(*groups) if fewest >= _FEWEST else float("nan")


def _bounds(runs: Runs) -> Floats:
    """Bounds on the share of each seed at the cost, (S, 2), equal unless the seed is censored."""
    bounds = []
    for seed in np.unique(runs.seeds):
        of_seed = runs.seeds == seed
        curve = exclusivity_curve(runs.lambdas[of_seed], runs.tvd[of_seed], runs.share[of_seed])
        share = np.interp(COST, curve.cost, curve.share)
        bounds.append((share, share if curve.end >= COST else 1.0))
    return np.array(bounds)
