"""When training counts as collapsed. Arrays are NumPy's, as read from records."""

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

Floats = NDArray[np.float64]


def frequency_loss(counts: NDArray[np.integer]) -> float:
    """Entropy of the class frequencies in nats: the loss of predicting these for every instance.

    It is the smallest loss of a prediction that does not depend on the text. `counts` (C,) are the
    numbers of instances whose target is each class.

    Raises:
        InputError: All counts are 0.

    Example:
        >>> round(frequency_loss(np.array([2, 2, 0])), 4)
        0.6931
    """
    total = counts.sum()
    if not total > 0:
        raise InputError("the loss of class frequencies needs at least one instance.")
    share = counts[counts > 0] / total
    return float(-(share * np.log(share)).sum())


def collapse_threshold(lambdas: Floats, losses: Floats, ignorant: float) -> float:
    """Loss in nats above which a run counts as collapsed; so does one whose loss is not finite.

    It is the midpoint between the loss without an adversary, the median over the runs of lambda 0,
    and `ignorant`: a run above it has lost more than half of what can be learned. No parameter of
    this rule is tuned.

    Args:
        lambdas: Lambda of each run, (P,).
        losses: Mean negative log-likelihood of each run of the base's predicted classes on the
            validation split, in nats, (P,), without the divergence term of attention.
        ignorant: Loss of a prediction that has learned nothing: `frequency_loss` of the base's
            predicted classes. The loss of a model with uniform attention gives a stricter rule:
            whether more than half of the contribution of attention is lost.

    Raises:
        InputError: No run of lambda 0 has a finite loss, or their median is not below `ignorant`.
    """
    control = losses[np.isfinite(losses) & (lambdas == 0)]
    if not len(control):
        raise InputError("collapses are judged by lambda 0: no run of it has a finite loss.")
    control_median = float(np.median(control))
    if not ignorant > control_median:
        raise InputError(
            f"the loss of knowing nothing is {ignorant:.4g}, but must be above the median of "
            f"lambda 0, {control_median:.4g}."
        )
    return (control_median + ignorant) / 2
