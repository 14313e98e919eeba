"""What the numbers of the page are: functions of arrays, each tested against another way to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnlight.report.violins import EDGES
from attnlight.statistics.bootstrap import CONFIDENCE, RESAMPLES

Statistic = Callable[[NDArray[np.intp]], float]
TIE = 1e-5  # of an instance's largest score; what is closer is a tie (design: rounding orders nothing)


def accuracy(label: NDArray[np.int64], prediction: NDArray[np.int64]) -> float:
    """Share of right predictions."""
    return float((label == prediction).mean())


def positive_f1(label: NDArray[np.int64], prediction: NDArray[np.int64]) -> float:
    """F1 of class 1: 2 TP / (2 TP + FP + FN)."""
    found = 2 * ((label == 1) & (prediction == 1)).sum()
    return float(found / ((label == 1).sum() + (prediction == 1).sum()))


def macro_f1(label: NDArray[np.int64], prediction: NDArray[np.int64]) -> float:
    """Mean over classes of 2 TP / (2 TP + FP + FN), classes that neither names left out."""
    classes = int(max(label.max(), prediction.max())) + 1
    hits = np.bincount(label[label == prediction], minlength=classes)
    named = np.bincount(np.concatenate([label, prediction]), minlength=classes)
    return float((2 * hits[named > 0] / named[named > 0]).mean())


def auroc(label: NDArray[np.int64], score: NDArray[np.floating]) -> float:
    """Share of pairs of a positive and a negative that the score orders rightly, ties half."""
    from scipy.stats import rankdata

    positive = label == 1
    n = int(positive.sum())
    above = rankdata(score)[positive].sum() - n * (n + 1) / 2
    return float(above / (n * (len(label) - n)))


def average_precision(score: NDArray[np.floating], relevant: NDArray[np.bool_]) -> float:
    """Area under the precision-recall curve, sum of (recall gained) x precision over thresholds.

    Items whose scores tie pass the threshold together, so that a constant score gets the base
    rate whatever the order of the items.

    Args:
        score: Score of each item, (N,).
        relevant: Which items are to be found, (N,).

    Returns:
        The area in (0, 1]; NaN where nothing is to be found.
    """
    if not relevant.any():
        return float("nan")
    order = np.argsort(-score, kind="stable")
    steps = -np.diff(score[order]) > TIE * np.abs(score).max()
    ends = np.flatnonzero(np.append(steps, True))
    hits = np.cumsum(relevant[order])[ends]
    gained = np.diff(hits, prepend=0)
    return float((gained * hits / (ends + 1)).sum() / hits[-1])


def interval(statistic: Statistic, instances: int) -> tuple[float, float]:
    """95 % percentile bootstrap over instances, drawn as `attnlight.statistics.bootstrap` does.

    Args:
        statistic: The number that a resample, rows of instances (n,), gives.
        instances: How many instances n there are.
    """
    random = np.random.default_rng(0)
    found = [statistic(random.integers(0, instances, size=instances)) for _ in range(RESAMPLES)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def median_interval(values: NDArray[np.floating]) -> tuple[float, float]:
    """95 % percentile bootstrap of a median, in the limit of infinitely many resamples.

    The m-th smallest of a resample of n values is at most the k-th smallest of them with the
    probability that at least m of n draws are among those k. Of an even number of values the lower
    middle one counts at the lower end and the upper one at the upper end.

    Args:
        values: The values (n,), all defined.
    """
    from scipy.stats import binom

    n, ascending = len(values), np.sort(values)
    draws = binom(n, np.arange(1, n + 1) / n)
    tail = (1 - CONFIDENCE) / 2
    low = np.argmax(draws.sf((n + 1) // 2 - 1) >= tail)
    high = np.argmax(draws.sf(n // 2) >= 1 - tail)
    return float(ascending[low]), float(ascending[high])


def attention_bin(max_attention: NDArray[np.floating]) -> NDArray[np.intp]:
    """Which of Jain & Wallace's four bins of maximum attention each text falls into, (n,)."""
    bins: NDArray[np.intp] = np.digitize(max_attention, EDGES[1:-1])
    return bins
