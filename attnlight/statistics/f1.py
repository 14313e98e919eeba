"""F1 of several runs, with bootstrap replicates over instances.

F1 is not a mean over instances, so its replicates are computed from counts: each resample sums, for
every run and class, true positives and the numbers of labels and predictions of the class. The
draws are those of `attnlight.statistics.seed_bootstrap`, so that intervals of F1 and of means share
resamples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import RESAMPLES, Floats, defined_mean, divide, resampled_rows

Integers = NDArray[np.integer]


def f1_by_class(prediction: Integers, label: Integers, classes: int) -> Floats:
    """F1 of each class in one run; arguments are those of `resampled_f1`.

    Returns:
        (K,) for K classes, NaN for a class absent from labels and predictions.
    """
    labelled = label >= 0
    correct, predicted = labelled & (prediction == label), labelled & (prediction >= 0)
    hits, labels, predictions = (
        np.bincount(values, minlength=classes).astype(np.float64)
        for values in (label[correct], label[labelled], prediction[predicted])
    )
    return divide(2.0 * hits, labels + predictions)


def resampled_f1(
    predictions: Integers,
    label: Integers,
    classes: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """F1 of each run, (S,), and its bootstrap replicates over instances, (B, S).

    With two classes it is the F1 of class 1, otherwise the mean over classes. A class absent from
    labels and predictions has no F1 and is excluded from the mean; a run is NaN if no class has
    one.

    Args:
        predictions: Predicted class of each of S runs, (S, n); a negative value counts as wrong.
        label: True class of each instance, (n,); instances with a negative value are excluded.
        classes: Number of classes.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws.

    Example:
        >>> resampled_f1(np.array([[1, 1, 0, 0]]), np.array([1, 0, 1, 0]), classes=2)[0]
        array([0.5])
    """
    scored_classes = np.array([1]) if classes == 2 else np.arange(classes)
    is_label = label[:, None, None] == scored_classes
    is_prediction = predictions.T[:, :, None] == scored_classes
    # Twice the true positives, and labels plus predictions, by run and class, (n, S, K, 2).
    counts = np.stack(
        [2.0 * (is_label & is_prediction), is_label.astype(np.float64) + is_prediction], axis=-1
    )
    counts[label < 0] = 0.0
    replicates, observed = resampled_rows(
        counts.reshape(len(label), -1), resamples=resamples, seed=seed
    )
    results = []
    for sums in (observed, replicates):
        by_class = sums[..., : counts[0].size].reshape(*sums.shape[:-1], *counts.shape[1:])
        results.append(defined_mean(divide(by_class[..., 0], by_class[..., 1])))
    return results[0], results[1]
