"""Statistics of the page, each tested against an independent computation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from attnlight.statistics.bootstrap import CONFIDENCE, resampled_counts
from results_page.tables import Resampled

Values = NDArray[np.floating]
TIE = 1e-5  # tolerance of ties, relative to the largest score: rounding must not order items


def resampled_auroc(label: NDArray[np.int64], scores: Values) -> Resampled:
    """Share of pairs of a positive and a negative that each run orders correctly, ties half.

    Args:
        label: 1 for a positive, (n,).
        scores: Scores of each run, (S, n).
    """
    # Count of each text: 1, then its count in each resample.
    counts = np.concatenate([np.ones((1, len(label)), np.uint8), resampled_counts(len(label))])
    areas = []
    for score in scores:
        order = np.argsort(score)
        starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf) > 0)  # of each group of ties
        positive, negative = (
            np.add.reduceat(counts[:, order] * members[order], starts, axis=1, dtype=np.int64)
            for members in (label == 1, label != 1)
        )
        below = negative.cumsum(axis=1) - negative / 2
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        areas.append((positive * below).sum(axis=1) / pairs)
    observed, *resampled = np.stack(areas, axis=1)
    return observed, np.array(resampled)


def resampled_quantile(values: Values, level: float | Values = 0.5) -> Resampled:
    """A quantile over the texts of each run, linear between neighbours; values (S, n), defined.

    The level may differ by run, (S,).
    """
    values, levels = values.astype(np.float64), np.broadcast_to(level, len(values))
    n, observed, resampled = values.shape[1], [], []
    for run, share in zip(values, levels, strict=True):
        place = share * (n - 1)
        # The count of the k smallest has a deviation of sqrt(k (1 - k / n)): search 8 of these.
        margin = int(8 * np.sqrt(n * share * (1 - share))) + 8
        start, stop = max(0, int(place) - margin), int(place) + margin
        counts = resampled_counts(n)[:, order := np.argsort(run)]
        before = counts[:, :start].sum(axis=1, dtype=np.int32)[:, None]
        ends = before + counts[:, start:stop].cumsum(axis=1, dtype=np.int32)
        low, high = (
            run[order][start + (ends > rank).argmax(axis=1)]
            for rank in (np.floor(place), np.ceil(place))
        )
        observed.append(np.quantile(run, share))
        resampled.append(low + (high - low) * (place % 1))
    return np.array(observed), np.stack(resampled, axis=1)


def average_precision(score: Values, relevant: NDArray[np.bool_]) -> float:
    """Area under the precision-recall curve, sum of (recall gained) x precision over thresholds.

    Items with tied scores pass the threshold together, so that a constant score gets the base rate
    in any order of the items.

    Args:
        score: Score of each item, (N,).
        relevant: Mask of the relevant items, (N,).

    Returns:
        The area in (0, 1]; NaN if no item is relevant.
    """
    if not relevant.any():
        return float("nan")
    order = np.argsort(-score, kind="stable")
    steps = -np.diff(score[order]) > TIE * np.abs(score).max()
    ends = np.flatnonzero(np.append(steps, True))
    hits = np.cumsum(relevant[order])[ends]
    return float((np.diff(hits, prepend=0) * hits / (ends + 1)).sum() / hits[-1])


def median_interval(values: Values) -> tuple[float, float]:
    """95 % percentile bootstrap of a median, in the limit of infinitely many resamples.

    The m-th smallest of a resample of n values is at most the k-th smallest value with the
    probability that at least m of n draws are among the k smallest. For even n the lower of the two
    middle values gives the lower end and the upper one the upper end.

    Args:
        values: The values (n,), all defined.
    """
    n, ascending = len(values), np.sort(values)
    draws = binom(n, np.arange(1, n + 1) / n)
    tail = (1 - CONFIDENCE) / 2
    low = np.argmax(draws.sf((n + 1) // 2 - 1) >= tail)
    high = np.argmax(draws.sf(n // 2) >= 1 - tail)
    return float(ascending[low]), float(ascending[high])
