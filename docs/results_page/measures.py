"""Statistics of the page, each tested against an independent computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from attnlight.statistics.bootstrap import CONFIDENCE, resampled_counts
from attnlight.statistics.seed_bootstrap import Resampled

Values = NDArray[np.floating]


def _with_resamples(n: int) -> NDArray[np.uint8]:
    """How often each of n texts counts: once, then in each resample, (1 + B, n)."""
    return np.concatenate([np.ones((1, n), np.uint8), resampled_counts(n)])


def resampled_auroc(label: NDArray[np.int64], scores: Values) -> Resampled:
    """Share of pairs of a positive and a negative that each run orders correctly, ties half.

    Args:
        label: 1 for a positive, (n,).
        scores: Scores of each run, (S, n).
    """
    areas = []
    for positive, negative in _counts_by_score(label, scores):
        below = negative.cumsum(axis=1) - negative / 2
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        areas.append((positive * below).sum(axis=1) / pairs)
    observed, *resampled = np.stack(areas, axis=1)
    return observed, np.array(resampled)


def resampled_average_precision(label: NDArray[np.int64], scores: Values) -> Resampled:
    """Precision of each run at each score, weighted by the recall gained there.

    Arguments are those of `resampled_auroc`.
    """
    means = []
    for positive, negative in _counts_by_score(label, scores):
        gained = positive[:, ::-1] / positive.sum(axis=1, keepdims=True)
        found, both = (x[:, ::-1].cumsum(axis=1) for x in (positive, positive + negative))
        means.append((gained * found / np.maximum(both, 1)).sum(axis=1))
    observed, *resampled = np.stack(means, axis=1)
    return observed, np.array(resampled)


def _counts_by_score(label: NDArray[np.int64], scores: Values) -> Iterator[list[Values]]:
    """Of each run the counts of positives and of negatives by ascending score, each (1 + B, T)."""
    counts = _with_resamples(len(label))
    for score in scores:
        order = np.argsort(score)
        starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf) > 0)  # of each group of ties
        yield [
            np.add.reduceat(
                np.take(counts, order, axis=1) * members[order], starts, axis=1, dtype=np.int64
            )
            for members in (label == 1, label != 1)
        ]


def resampled_quantile(values: Values, level: float | Values = 0.5) -> Resampled:
    """A quantile over the texts of each run, linear between neighbours; values (S, n), defined.

    The level may differ by run, (S,).
    """
    counts, quantiles = _with_resamples(n := values.shape[1]), []
    levels = np.broadcast_to(level, len(values))
    for run, share in zip(values.astype(np.float64), levels, strict=True):
        place, order = share * (n - 1), np.argsort(run)
        # Further from its place, by ten standard deviations, no resample has its quantile.
        reach = 50 + round(10 * np.sqrt(n * share * (1 - share)))
        first = max(0, int(place) - reach)
        near = order[first : int(place) + reach + 1]
        drawn = np.take(counts, near, axis=1).cumsum(axis=1, dtype=np.int32)
        drawn += np.take(counts, order[:first], axis=1).sum(axis=1, dtype=np.int32)[:, None]
        ends = (np.floor(place), np.ceil(place))
        low, high = (run[near][(drawn > rank).argmax(axis=1)] for rank in ends)
        quantiles.append(low + (high - low) * (place % 1))
    observed, *resampled = np.stack(quantiles, axis=1)
    return observed, np.array(resampled)


def resampled_rank_correlations(
    x: Values, others: Sequence[Values], given: Values
) -> list[tuple[Resampled, Resampled]]:
    """Spearman's correlation of x with each of some values, and the partial one, of each run.

    Ties have their mean rank, and ranks are those of the resample. The partial correlation holds
    the rank of `given` fixed. A text counts where x, the other value and `given` are defined.

    Args:
        x: Values of each run, (S, n), NaN where undefined.
        others: Values that x is compared with, each (S, n).
        given: Values to hold fixed, (S, n).

    Returns:
        For each of `others` the correlations and the partial ones, NaN where a value is constant.
    """
    counts = _with_resamples(x.shape[1])
    results = np.full((len(others), 2, len(x), len(counts)), np.nan)
    for run, (own, fixed) in enumerate(zip(x, given, strict=True)):
        ranks_by_mask: dict[bytes, list[Values]] = {}  # of x and given, many masks are equal
        for place, other in enumerate(others):
            defined = ~np.isnan([own, other[run], fixed]).any(axis=0)
            if not defined.any():
                continue
            weights = counts[:, defined].astype(np.float64)
            if (key := defined.tobytes()) not in ranks_by_mask:
                ranks_by_mask[key] = [normalized_ranks(x[defined], weights) for x in (own, fixed)]
            ranks = (*ranks_by_mask[key], normalized_ranks(other[run, defined], weights))
            fixed_x, xy, fixed_y = (
                np.einsum("bn,bn,bn->b", weights, ranks[i], ranks[j])
                for i, j in ((0, 1), (0, 2), (1, 2))
            )
            with np.errstate(invalid="ignore", divide="ignore"):
                scale = np.sqrt((1 - fixed_x**2) * (1 - fixed_y**2))
                results[place, :, run] = xy, (xy - fixed_x * fixed_y) / scale
    return [((a[:, 0], a[:, 1:].T), (b[:, 0], b[:, 1:].T)) for a, b in results]


def normalized_ranks(values: Values, weights: Values) -> Values:
    """Ranks in resamples of n values, (B, n), with mean 0 and sum of squares 1 in each resample.

    Args:
        values: The values, (n,), ties to be given their mean rank.
        weights: Number of times each resample draws each value, (B, n).

    Returns:
        The ranks; NaN in a resample of equal values.
    """
    order = np.argsort(values)
    first = np.diff(values[order], prepend=-np.inf) > 0  # of each group of ties
    ties = np.add.reduceat(np.take(weights, order, axis=1), np.flatnonzero(first), axis=1)
    middle: Values = ties.cumsum(axis=1) - ties / 2 - ties.sum(axis=1, keepdims=True) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        middle /= np.sqrt((ties * middle**2).sum(axis=1, keepdims=True))
    places = np.empty(len(values), np.int64)
    places[order] = np.cumsum(first) - 1
    return np.take(middle, places, axis=1)


def median_interval(values: Values) -> tuple[float, float]:
    """95 % percentile bootstrap of a median, in the limit of infinitely many resamples.

    The m-th smallest of a resample of n values is at most the k-th smallest value with the
    probability that at least m of n draws are among the k smallest. For even n the lower of the two
    middle values gives the lower end and the upper one the upper end.
    """
    n, ascending = len(values), np.sort(values)
    draws = binom(n, np.arange(1, n + 1) / n)
    tail = (1 - CONFIDENCE) / 2
    low = np.argmax(draws.sf((n + 1) // 2 - 1) >= tail)
    high = np.argmax(draws.sf(n // 2) >= 1 - tail)
    return float(ascending[low]), float(ascending[high])
