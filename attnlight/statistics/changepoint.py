"""Do points lie on a line, on one with a kink, or on one with a jump? Arrays are NumPy's.

The three are fitted by least squares, the last two over all places t of the bend:

* line: y = a + b x;
* kink: y = a + b x + c max(x - t, 0), continuous;
* jump: y = a + b x + c [x > t], two lines of one slope. Two levels are the case b = 0. Lines of two
  slopes would have a parameter more than a kink, and win against it by that alone.

Kink and jump have as many parameters, so that they are compared by their residuals, and the line is
in both, with c = 0. They are compared by the Bayesian information criterion of independent normal
residuals of one variance, `BIC = n ln(RSS / n) + k ln n + n (1 + ln 2 pi)`, where k counts the
coefficients, the place of the bend and the variance: 3 for a line, 5 for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

VERY_STRONG = 10.0  # of a difference in BIC: Kass & Raftery (1995), 3.2
_SIDE = 3  # points on either side of a bend
# Residuals this small beside the largest y are rounding errors and favour no fit.
_ROUNDING = 1e-9

Floats = NDArray[np.float64]
Shape = Literal["line", "kink", "jump"]


class Fit(NamedTuple):
    """A fitted shape.

    Attributes:
        shape: Which it is.
        intercept: a.
        slope: b.
        change: c, the change of slope at a kink or of level at a jump; 0 for a line.
        place: t, NaN for a line. A jump's is the middle between the points that it parts.
        rss: Sum of the squared residuals.
        bic: Bayesian information criterion; less is better.
    """

    shape: Shape
    intercept: float
    slope: float
    change: float
    place: float
    rss: float
    bic: float

    def at(self, x: Floats) -> Floats:
        """Fitted values (m,) at x (m,)."""
        line: Floats = self.intercept + self.slope * x
        if self.shape == "line":
            return line
        return line + self.change * _BEND[self.shape](x, self.place)


class Segments(NamedTuple):
    """Three fits of the same points.

    Attributes:
        line: The line.
        kink: The line with a kink.
        jump: The line with a jump.
    """

    line: Fit
    kink: Fit
    jump: Fit

    @property
    def preferred(self) -> Fit:
        """The fit of least BIC."""
        return min(self, key=lambda fit: fit.bic)

    @property
    def margin(self) -> float:
        """The second least BIC less the least one."""
        best, second, _ = sorted(fit.bic for fit in self)
        return second - best

    @property
    def over_line(self) -> float:
        """The line's BIC less the least one: evidence for a bend of either shape."""
        return self.line.bic - self.preferred.bic

    @property
    def safe_point(self) -> float | None:
        """Where the bend is, if there is one: None unless it beats the line by more than 10.

        That is "very strong" evidence (Kass & Raftery, 1995). Whether it is a kink or a jump is
        another question, which `margin` answers.
        """
        return self.preferred.place if self.over_line > VERY_STRONG else None


def fit_segments(x: NDArray[np.floating], y: NDArray[np.floating]) -> Segments:
    """Fit a line, a kink and a jump.

    A bend has at least three points on either side. Within the gap between two neighbouring points
    a jump's place changes nothing. A kink's best place in a gap is where the lines through the points
    to the left and to the right meet, if they meet there, and else an end of the gap (Hudson, 1966),
    so that the places tried hold the best one.

    Points that share a seed or a base are not independent, for which BIC makes no allowance, and one
    point far from all others can make a bend at an end: see first which runs collapsed
    (`collapse_share`).

    Args:
        x: (n,), in any order.
        y: (n,).

    Raises:
        InputError: A number is not finite, x and y are not as many, or there are too few points for
            a bend: three on either side, at three places or more.
    """
    if x.ndim != 1 or x.shape != y.shape or not (np.isfinite(x) & np.isfinite(y)).all():
        raise InputError(
            f"segments are fitted to as many finite x as y; they have shapes {x.shape}, {y.shape}."
        )
    order = np.argsort(x, kind="stable")
    across, up = x[order].astype(np.float64), y[order].astype(np.float64)
    # The point to the left of each gap that a bend may be in, (g,).
    left = np.flatnonzero(np.diff(across) > 0)
    left = left[(left >= _SIDE - 1) & (left < len(x) - _SIDE)]
    different = len(np.unique(x))
    if not left.size or different < 3:
        raise InputError(
            f"segments need points at three places or more, of which a bend leaves {_SIDE} points on "
            f"either side; there are {len(x)} points at {different} places."
        )
    basis, _ = np.linalg.qr(np.stack([np.ones_like(across), across - across.mean()], axis=1))
    rest = up - basis @ (basis.T @ up)
    fits = [_fitted("line", across, up, math.nan)]
    places: tuple[tuple[Shape, Floats], ...] = (
        ("kink", _kinks(across, up, left)),
        ("jump", (across[left] + across[left + 1]) / 2),
    )
    for shape, tried in places:
        bends = _BEND[shape](across[:, None], tried)
        bends = bends - basis @ (basis.T @ bends)
        # What a column adds to a fit is its part that is orthogonal to the others (Frisch & Waugh).
        size = np.square(bends).sum(axis=0)
        gain = np.square(rest @ bends) / np.where(size > 0, size, np.inf)
        fits.append(_fitted(shape, across, up, float(tried[gain.argmax()])))
    return Segments(*fits)


def _kinks(x: Floats, y: Floats, gaps: NDArray[np.int64]) -> Floats:
    """Ends of the gaps, and where in them the lines to the left and to the right meet."""
    met = []
    for last in gaps:
        lines = []
        for part in (slice(None, last + 1), slice(last + 1, None)):
            centred = x[part] - x[part].mean()
            spread = np.square(centred).sum()
            slope = float(centred @ y[part] / spread) if spread > 0 else math.nan
            lines.append((slope, float(y[part].mean() - slope * x[part].mean())))
        (slope, level), (other_slope, other_level) = lines
        if slope != other_slope:  # NaN where the points of a side are at one place
            place = (level - other_level) / (other_slope - slope)
            met += [place] if x[last] < place < x[last + 1] else []
    places = np.concatenate([x[gaps], x[gaps + 1], met])
    inner: Floats = places[(places > x[0]) & (places < x[-1])]
    return inner


def _fitted(shape: Shape, x: Floats, y: Floats, place: float) -> Fit:
    centre, columns = float(x.mean()), [np.ones_like(x), x - x.mean()]
    if shape != "line":
        columns.append(_BEND[shape](x, place))
    design = np.stack(columns, axis=1)
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    rss = float(np.square(y - design @ found).sum())
    # Residuals of zero would have an unbounded likelihood.
    noise = max(math.sqrt(rss / len(x)), _ROUNDING * float(np.abs(y).max()), 1e-150)
    bic = len(x) * (2 * math.log(noise) + 1 + math.log(2 * math.pi))
    bic += (3 if shape == "line" else 5) * math.log(len(x))
    level, slope, change = [*found.tolist(), 0.0][:3]
    return Fit(shape, level - slope * centre, slope, change, place, rss, bic)


_BEND: dict[str, Callable[[Floats, Floats | float], Floats]] = {
    "kink": lambda x, place: np.maximum(x - place, 0.0),
    "jump": lambda x, place: (x > place).astype(np.float64),
}
