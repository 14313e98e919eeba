"""Upper bound on the mean divergence of attention at a given mean change of the prediction.

On the axes of Wiegreffe and Pinter (2019), figure 5: mean JS against mean total variation distance.
Arrays are NumPy's, as read from records.
"""

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

# Upper edges of a grid of tolerances; the last admits any attention. JS rises steeply within the
# first hundredths and hardly beyond.
EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
_CORNERS = 400  # of a stored curve

Floats = NDArray[np.float64]


def frontier(js: NDArray[np.floating], epsilons: NDArray[np.floating]) -> tuple[Floats, Floats]:
    """Concave upper bound on mean JS for any attention over the same encoder and readout.

    Each instance has its own tolerance: at slope m it is the maximiser of
    `J_i(epsilon) - m epsilon`, and the means over instances trace the curve as m decreases. A
    common tolerance would not give a bound. An instance whose prediction changes by more than one
    edge of the grid and at most the next counts with the JS of the upper edge and the change of the
    lower one, so that the bound holds between edges. It holds for any mixture over instances, and
    for two classes, where J_i is exact.

    Args:
        js: J_i(epsilon_k), the largest JS at each tolerance, (n, K), ascending in k; rows with NaN
            are excluded.
        epsilons: Upper edges of the grid, (K,), ascending from above 0; a last edge of 1 or more
            covers every attention.

    Returns:
        The corners of the curve, which is constant after the last: mean total variation distance
        (P,), from 0 on, and the bound on mean JS (P,), in nats. Empty if no row is defined.

    Raises:
        InputError: The shapes do not match or the epsilons do not ascend from above 0.

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
    rows, current = np.arange(len(defined)), np.zeros(len(defined), dtype=np.int64)
    changes, gains = [np.empty(0)], [np.empty(0)]
    while len(rows):
        rise = defined[rows] - defined[rows, current][:, None]
        run = lower - lower[current][:, None]
        slope = np.where(run > 0, rise / np.where(run > 0, run, 1.0), -np.inf)
        best = slope.argmax(axis=1)
        index = np.arange(len(rows))
        rising = slope[index, best] > 0
        changes.append(run[index, best][rising])
        gains.append(rise[index, best][rising])
        rows, current = rows[rising], best[rising]
    change, gain = np.concatenate(changes), np.concatenate(gains)
    # The sum of concave curves joins their segments, the steepest first.
    order = np.argsort(-gain / change, kind="stable")
    path = np.stack([change[order], gain[order]]) / len(defined)
    start = np.array([[0.0], [defined[:, 0].mean()]])
    tvd, mean_js = np.concatenate([start, start + path.cumsum(axis=1)], axis=1)
    return tvd, mean_js


def thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most 400 corners of a concave curve, evenly spaced along it, including both ends.

    Keeps stored files small, and changes the curve by less than a thousandth of its height. `x` and
    `y` (P,) ascend.
    """
    if len(x) <= _CORNERS:
        return x, y
    steps = np.hypot(np.diff(x) / np.ptp(x), np.diff(y) / np.ptp(y))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    indices = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], _CORNERS)))
    indices = np.minimum(indices, len(x) - 1)
    return x[indices], y[indices]
