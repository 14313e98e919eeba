"""F1 of several runs, with bootstrap replicates over instances.

F1 is not a mean over instances, so each replicate is computed from resampled counts: true positives,
and labels plus predictions, of every run and class.
"""

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import Floats, defined_mean, divide, resampled_rows

Integers = NDArray[np.integer]


def f1_by_class(prediction: Integers, label: Integers, classes: int) -> Floats:
    """F1 of each of K classes in one run, (K,); NaN for one absent from labels and predictions.

    The arguments are those of `resampled_f1`, with `prediction` (n,).
    """
    labelled = label >= 0
    correct, predicted = labelled & (prediction == label), labelled & (prediction >= 0)
    true_positives, labels, predictions = (
        np.bincount(values, minlength=classes).astype(np.float64)
        for values in (label[correct], label[labelled], prediction[predicted])
    )
    return divide(2.0 * true_positives, labels + predictions)


def resampled_f1(predictions: Integers, label: Integers, classes: int) -> tuple[Floats, Floats]:
    """F1 of each run, (S,), and its bootstrap replicates over instances, (B, S).

    Binary F1 of class 1 with two classes, else macro F1 without the classes absent from labels and
    predictions; NaN if none is left. Predictions (S, n) are those of S runs, of which a negative
    one counts as wrong; instances whose label (n,) is negative are excluded.

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
    replicates, observed = resampled_rows(counts.reshape(len(label), -1))
    # The sums of counts are followed by their numbers of defined values.
    by_class = (
        sums[..., : counts[0].size].reshape(*sums.shape[:-1], *counts.shape[1:])
        for sums in (observed, replicates)
    )
    f1, resampled = (defined_mean(divide(each[..., 0], each[..., 1])) for each in by_class)
    return f1, resampled
