"""F1 of several runs, as it is and resampled over instances.

F1 is no mean over instances, so its resamples are computed from counts: each resample sums, for
every run and class, the hits and the rows that are or were called the class. The draws are those
of `attnlight.statistics.seed_bootstrap`, so a table of F1 and of means is read on the same resamples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import RESAMPLES, defined_mean, divide, resampled_rows

Integers = NDArray[np.integer]
Floats = NDArray[np.float64]


def f1_by_class(prediction: Integers, label: Integers, classes: int) -> Floats:
    """F1 of each class in one run; arguments as for `resampled_f1`.

    Returns:
        (K,) for K classes, NaN for a class that is neither among the labels nor predicted.
    """
    known = label >= 0
    right, called = known & (prediction == label), known & (prediction >= 0)
    hits, true, found = (
        np.bincount(values, minlength=classes).astype(np.float64)
        for values in (label[right], label[known], prediction[called])
    )
    return divide(2.0 * hits, true + found)


def resampled_f1(
    predictions: Integers,
    label: Integers,
    classes: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """F1 of each run as it is, (S,), and in each resample of the instances, (B, S).

    F1 is that of class 1 where there are two classes, else the mean over classes. A class that is
    neither among the labels nor predicted has no F1 and is left out of the mean; a run is NaN where
    no class has one.

    Args:
        predictions: Predicted class of each of S runs, (S, n); a negative one is no class and
            counts as a miss.
        label: True class of each instance, (n,); instances with a negative one are left out.
        classes: Number of classes.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws, which are those of `attnlight.statistics.seed_bootstrap`.

    Example:
        >>> resampled_f1(np.array([[1, 1, 0, 0]]), np.array([1, 0, 1, 0]), classes=2)[0]
        array([0.5])
    """
    judged = np.array([1]) if classes == 2 else np.arange(classes)
    true = label[:, None, None] == judged
    called = predictions.T[:, :, None] == judged
    # Of each run and class twice the hits, and how often it is label or prediction, (n, S, K, 2).
    counts = np.stack([2.0 * (true & called), true.astype(np.float64) + called], axis=-1)
    counts[label < 0] = 0.0
    drawn, total = resampled_rows(counts.reshape(len(label), -1), resamples=resamples, seed=seed)
    found = []
    for sums in (total, drawn):
        whole = sums[..., : counts[0].size].reshape(*sums.shape[:-1], *counts.shape[1:])
        found.append(defined_mean(divide(whole[..., 0], whole[..., 1])))
    return found[0], found[1]
