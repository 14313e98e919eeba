"""F1 over several seeds, with intervals that resample seeds and instances.

F1 is no mean over instances, so its resamples are computed from counts: each resample sums, for
every run and class, the hits and the rows that are or were called the class. The draws are those
of `attnlight.functional.seeds`, so a table of F1 and of means is read on the same resamples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.functional.seeds import resample_seeds
from attnlight.functional.statistics import (
    CONFIDENCE,
    IN_MEMORY,
    RESAMPLES,
    MeanInterval,
    percentile_interval,
    resampled_sums,
)

Integers = NDArray[np.integer]
Floats = NDArray[np.float64]


def f1_scores(predictions: Integers, label: Integers, classes: int) -> Floats:
    """F1 of each run: of class 1 where there are two classes, else the mean over classes.

    A class that is neither among the labels nor predicted has no F1 and is left out of the mean.

    Args:
        predictions: Predicted class of each of S runs, (S, n); a negative one is no class and
            counts as a miss.
        label: True class of each instance, (n,); instances with a negative one are left out.
        classes: Number of classes.

    Returns:
        (S,), NaN where no class has an F1.

    Example:
        >>> f1_scores(np.array([[1, 1, 0, 0]]), np.array([1, 0, 1, 0]), classes=2)
        array([0.5])
    """
    counts = _counts(predictions, label, _judged(classes))
    return _f1(counts.sum(axis=0), len(predictions))


def f1_by_class(predictions: Integers, label: Integers, classes: int) -> Floats:
    """F1 of each class in each run; arguments as for `f1_scores`.

    Returns:
        (S, K) for K classes, NaN for a class that is neither among the labels nor predicted.
    """
    counts = _counts(predictions, label, np.arange(classes))
    return _ratios(counts.sum(axis=0), len(predictions))


def f1_over_seeds(
    predictions: Integers,
    label: Integers,
    classes: int,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> MeanInterval:
    """Mean over seeds of each seed's F1; arguments as for `f1_scores` and `seeds_then_instances`.

    Returns:
        The mean with its interval; `defined` counts the predictions of labelled instances.
    """
    ((mean, drawn),) = _resampled([predictions], label, classes, resamples, seed)
    return MeanInterval(mean, *percentile_interval(drawn, confidence), _size(label, predictions))


def f1_difference(
    a: Integers,
    b: Integers,
    label: Integers,
    classes: int,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> MeanInterval:
    """Mean F1 of runs a (S1, n) less that of runs b (S2, n), on the same instances in a resample.

    Seeds of the two groups are drawn apart, as by `difference_of_groups`.

    Returns:
        The difference with its interval; `defined` counts the predictions of both groups.
    """
    (first, drawn_first), (second, drawn_second) = _resampled(
        [a, b], label, classes, resamples, seed
    )
    low, high = percentile_interval(drawn_first - drawn_second, confidence)
    return MeanInterval(first - second, low, high, _size(label, a) + _size(label, b))


def _resampled(
    groups: Sequence[Integers], label: Integers, classes: int, resamples: int, seed: int
) -> list[tuple[float, Floats]]:
    """Each group's mean F1 over seeds, as it is and in each resample (B,)."""
    runs = np.concatenate(groups)
    counts = _counts(runs, label, _judged(classes))
    drawn, total = resampled_sums(
        [(counts, np.arange(len(label)))],
        counts.shape[1],
        resamples=resamples,
        seed=seed,
        in_memory=len(label) <= IN_MEMORY,
    )
    resampled, held = (_f1(sums[..., : counts.shape[1]], len(runs)) for sums in (drawn, total))
    ends = np.cumsum([len(group) for group in groups])[:-1]
    parts = (np.split(values, ends, axis=-1) for values in (held, resampled))
    return resample_seeds(list(zip(*parts, strict=True)), seed=seed)


def _judged(classes: int) -> Integers:
    """The classes that count."""
    return np.array([1]) if classes == 2 else np.arange(classes)


def _counts(predictions: Integers, label: Integers, judged: Integers) -> Floats:
    """For each run and class, twice the hits and how often it is label or prediction, (n, S K 2)."""
    true = label[:, None, None] == judged
    called = predictions.T[:, :, None] == judged
    known = (label >= 0)[:, None, None, None]
    both = np.stack([2.0 * (true & called), true.astype(np.float64) + called], axis=-1)
    return np.where(known, both, 0.0).reshape(len(label), -1)


def _f1(sums: Floats, runs: int) -> Floats:
    """F1 (..., S) from the sums of `_counts`, (..., S K 2)."""
    return _defined_mean(_ratios(sums, runs))


def _ratios(sums: Floats, runs: int) -> Floats:
    """F1 of each class (..., S, K) from the sums of `_counts`, NaN where it has none."""
    counts = sums.reshape(*sums.shape[:-1], runs, -1, 2)
    hits, seen = counts[..., 0], counts[..., 1]
    return np.divide(hits, seen, out=np.full_like(hits, np.nan), where=seen > 0)


def _defined_mean(values: Floats) -> Floats:
    """Mean over the last dimension of what is defined, NaN where nothing is."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=-1)
    total = np.where(defined, values, 0.0).sum(axis=-1)
    means: Floats = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return means


def _size(label: Integers, predictions: Integers) -> int:
    return int((label >= 0).sum()) * len(predictions)
