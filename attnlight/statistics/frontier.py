"""How much attention could differ on average at a given average change of the prediction.

On the axes of Wiegreffe and Pinter (2019), figure 5: mean JS against mean total variation distance.
Arrays are NumPy's: records are read without a device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

# Upper edges of a grid of tolerances; the last lets attention be anything. JS rises within the
# first hundredths and hardly after.
EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)

Floats = NDArray[np.float64]


def frontier(js: NDArray[np.floating], epsilons: NDArray[np.floating]) -> tuple[Floats, Floats]:
    """The concave curve that no attention over the same encoder and readout lies above.

    Each instance may spend another tolerance: at slope m it takes the one that maximises
    `J_i(epsilon) - m epsilon`, and the means over instances trace the curve as m falls. One
    tolerance for all is no bound. An instance that moves its prediction by more than one edge of
    the grid and at most the next is counted with the JS of the upper and the change of the lower,
    so that the curve is a bound between edges too. It holds for any mixture over instances, and
    for two classes, where J_i is exact.

    Args:
        js: J_i(epsilon_k), the largest JS at each tolerance, (n, K), ascending in k; rows with NaN
            are left out.
        epsilons: Upper edges of the grid, (K,), ascending from above 0; a last edge of 1 or more
            leaves no attention out.

    Returns:
        Mean total variation distance (P,), from 0 on, and the largest mean JS there (P,), in nats;
        the corners of the curve, which is flat after the last. Empty where no row is defined.

    Raises:
        InputError: Where the shapes do not fit or the epsilons do not ascend from above 0.

    Example:
        >>> frontier(np.array([[0.1, 0.5], [0.1, 0.3]]), np.array([0.1, 1.0]))
        (array([0.  , 0.05, 0.1 ]), array([0.1, 0.3, 0.4]))
    """
    edges = np.asarray(epsilons, dtype=np.float64)
    if js.ndim != 2 or js.shape[1:] != edges.shape or not (np.diff(edges, prepend=0.0) > 0).all():
        raise InputError(
            f"frontier needs JS (n, K) at K epsilons that ascend from above 0; JS is of shape "
            f"{js.shape}, the epsilons are {edges.tolist()}."
        )
    defined = js[~np.isnan(js).any(axis=1)].astype(np.float64)
    if not len(defined):
        return np.empty(0), np.empty(0)
    lower = np.concatenate([[0.0], edges[:-1]])
    # Each row's concave curve, segment by segment, the steepest first.
    rows, at = np.arange(len(defined)), np.zeros(len(defined), dtype=np.int64)
    changes, gains = [np.empty(0)], [np.empty(0)]
    while len(rows):
        rise = defined[rows] - defined[rows, at][:, None]
        run = lower - lower[at][:, None]
        slope = np.where(run > 0, rise / np.where(run > 0, run, 1.0), -np.inf)
        best = slope.argmax(axis=1)
        places = np.arange(len(rows))
        rising = slope[places, best] > 0
        changes.append(run[places, best][rising])
        gains.append(rise[places, best][rising])
        rows, at = rows[rising], best[rising]
    change, gain = np.concatenate(changes), np.concatenate(gains)
    # Concave curves add up by joining their segments, the steepest first.
    order = np.argsort(-gain / change, kind="stable")
    path = np.stack([change[order], gain[order]]) / len(defined)
    start = np.array([[0.0], [defined[:, 0].mean()]])
    tvd, mean_js = np.concatenate([start, start + path.cumsum(axis=1)], axis=1)
    return tvd, mean_js


def thinned(
    x: NDArray[np.float64], y: NDArray[np.float64], corners: int = 400
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some of a concave curve's corners, evenly along it, its ends among them.

    Ten thousand corners would make a file that is kept large; 400 move the curve by less than a
    thousandth of its height.

    Args:
        x: Ascending, (P,).
        y: Ascending, (P,).
        corners: How many to keep at most.
    """
    if len(x) <= corners:
        return x, y
    steps = np.hypot(np.diff(x) / np.ptp(x), np.diff(y) / np.ptp(y))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    kept = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], corners)))
    kept = np.minimum(kept, len(x) - 1)
    return x[kept], y[kept]
