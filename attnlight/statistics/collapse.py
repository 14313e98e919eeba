"""How often training collapses. Arrays are NumPy's: measures of runs come from records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

Floats = NDArray[np.float64]


class CollapseShare(NamedTuple):
    """How many runs of each lambda collapsed.

    Attributes:
        lambdas: Different lambdas, (L,), ascending.
        runs: Runs of each, (L,).
        collapsed: How many of these collapsed, (L,).
        threshold: The loss above which a run has collapsed, in nats.
    """

    lambdas: Floats
    runs: NDArray[np.int64]
    collapsed: NDArray[np.int64]
    threshold: float


def frequency_loss(counts: NDArray[np.integer]) -> float:
    """Negative log-likelihood in nats of predicting how frequent classes are, and nothing else.

    It is the least loss of a prediction that does not depend on the text.

    Args:
        counts: How often each class is the one to predict, (C,).

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


def collapse_share(lambdas: Floats, losses: Floats, ignorant: float) -> CollapseShare:
    """The share of runs, by lambda, whose training collapsed.

    A run has collapsed where its prediction loss is above the middle between what it is without an
    adversary, the median over the runs of lambda 0, and `ignorant`: it has lost more than half of
    what there was to learn. So has a run whose loss is not finite. Nothing in this is tuned.

    Args:
        lambdas: Of each run, (P,).
        losses: Mean negative log-likelihood of each run of the base's predicted classes on the
            validation split, in nats, (P,); attention has no part in it.
        ignorant: The same of a prediction that has learned nothing: `frequency_loss` of the base's
            predicted classes. The loss of a model of uniform attention asks a stricter question:
            whether more than half of what attention adds is lost.

    Raises:
        InputError: No run of lambda 0 has a finite loss, or `ignorant` is no more than their median.
    """
    finite = np.isfinite(losses)
    control = losses[finite & (lambdas == 0)]
    if not len(control):
        raise InputError("collapses are judged by lambda 0: no run of it has a finite loss.")
    usual = float(np.median(control))
    if not ignorant > usual:
        raise InputError(
            f"the loss of knowing nothing is {ignorant:.4g}, but must be above the median of lambda "
            f"0, {usual:.4g}."
        )
    threshold = (usual + ignorant) / 2
    values, place = np.unique(lambdas, return_inverse=True)
    fallen = ~finite | (losses > threshold)
    runs, collapsed = (np.bincount(place, weights).astype(np.int64) for weights in (None, fallen))
    return CollapseShare(values, runs, collapsed, threshold)
