"""Segmented regression: a line, a line with a kink, or one with a jump. Arrays are NumPy's.

The three are fitted by least squares, the last two over all changepoints t:

* line: y = a + b x;
* kink: y = a + b x + c max(x - t, 0), continuous;
* jump: y = a + b x + c [x > t], two lines of equal slope; b = 0 gives two levels. Different slopes
  would add a parameter, an advantage over the kink.

Kink and jump have equally many parameters, so their comparison depends on residuals only; the line
is the special case c = 0 of both. Models are compared by the Bayesian information criterion for
independent normal residuals of equal variance, `BIC = n ln(RSS / n) + k ln n + n (1 + ln 2 pi)`,
where k counts the coefficients, the changepoint and the variance: 3 for a line, 5 for the others.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

VERY_STRONG = 10.0  # difference in BIC: Kass & Raftery (1995), section 3.2
_MIN_POINTS = 3  # least number of points on either side of a changepoint
# Residuals this small relative to the largest y are rounding errors and do not favour a fit.
_ROUNDING = 1e-9

Floats = NDArray[np.float64]
Shape = Literal["line", "kink", "jump"]


class Fit(NamedTuple):
    """A fitted model."""

    shape: Shape  # its shape
    intercept: float  # a
    slope: float  # b
    change: float  # c, the change of slope at a kink or of level at a jump; 0 for a line
    place: float  # t, NaN for a line; for a jump the midpoint between the points it separates
    rss: float  # sum of the squared residuals
    bic: float  # Bayesian information criterion; lower is better

    def at(self, x: Floats) -> Floats:
        """Fitted values (m,) at x (m,)."""
        line: Floats = self.intercept + self.slope * x
        if self.shape == "line":
            return line
        return line + self.change * _BASIS[self.shape](x, self.place)


class Segments(NamedTuple):
    """The three fits to the same points."""

    line: Fit
    kink: Fit
    jump: Fit

    @property
    def preferred(self) -> Fit:
        """The fit with the lowest BIC."""
        return min(self, key=lambda fit: fit.bic)

    @property
    def margin(self) -> float:
        """The second lowest BIC minus the lowest one."""
        best, second, _ = sorted(fit.bic for fit in self)
        return second - best

    @property
    def over_line(self) -> float:
        """The line's BIC minus the lowest one: evidence for a changepoint, of which `VERY_STRONG` is enough.

        The evidence for a kink against a jump is `margin`.
        """
        return self.line.bic - self.preferred.bic


def fit_segments(x: NDArray[np.floating], y: NDArray[np.floating]) -> Segments:
    """Fit a line, a kink and a jump.

    A changepoint has at least three points on either side. All places of a jump in the gap between
    two neighbouring points are equivalent. The best kink in a gap is the intersection of the lines
    fitted to the points on the left and on the right, if it lies in the gap, otherwise an end of
    the gap (Hudson, 1966), so that the candidates include the optimum.

    BIC ignores that points with a common seed or base are dependent, and an outlier can cause a
    changepoint near an end: check first which runs collapsed (`collapse_threshold`). x (n,) may be
    in any order.

    Raises:
        InputError: A value is not finite, x and y differ in length, or there are too few points for
            a changepoint: three on either side, and three distinct x.
    """
    if x.ndim != 1 or x.shape != y.shape or not (np.isfinite(x) & np.isfinite(y)).all():
        raise InputError(
            f"segments are fitted to as many finite x as y; they have shapes {x.shape}, {y.shape}."
        )
    order = np.argsort(x, kind="stable")
    xs, ys = x[order].astype(np.float64), y[order].astype(np.float64)
    # Index of the point to the left of each admissible gap, (g,).
    left = np.flatnonzero(np.diff(xs) > 0)
    left = left[(left >= _MIN_POINTS - 1) & (left < len(x) - _MIN_POINTS)]
    distinct = len(np.unique(x))
    if not left.size or distinct < 3:
        raise InputError(
            f"segments need at least three distinct x and {_MIN_POINTS} points on either side of a "
            f"changepoint; there are {len(x)} points at {distinct} distinct x."
        )
    basis, _ = np.linalg.qr(np.stack([np.ones_like(xs), xs - xs.mean()], axis=1))
    residuals = ys - basis @ (basis.T @ ys)
    fits = [_fit("line", xs, ys, math.nan)]
    places: tuple[tuple[Shape, Floats], ...] = (
        ("kink", _kink_candidates(xs, ys, left)),
        ("jump", (xs[left] + xs[left + 1]) / 2),
    )
    for shape, candidates in places:
        bends = _BASIS[shape](xs[:, None], candidates)
        bends = bends - basis @ (basis.T @ bends)
        # A column's contribution is its part orthogonal to the other columns (Frisch & Waugh).
        norms = np.square(bends).sum(axis=0)
        gain = np.square(residuals @ bends) / np.where(norms > 0, norms, np.inf)
        fits.append(_fit(shape, xs, ys, float(candidates[gain.argmax()])))
    return Segments(*fits)


def _kink_candidates(x: Floats, y: Floats, gaps: NDArray[np.int64]) -> Floats:
    """Ends of the gaps, and where lines fitted to the left and right intersect in them."""
    intersections = []
    for last in gaps:
        lines = []
        for side in (slice(None, last + 1), slice(last + 1, None)):
            centred = x[side] - x[side].mean()
            variation = np.square(centred).sum()
            slope = float(centred @ y[side] / variation) if variation > 0 else math.nan
            lines.append((slope, float(y[side].mean() - slope * x[side].mean())))
        (slope, level), (other_slope, other_level) = lines
        if slope != other_slope:  # NaN where all x of a side are equal
            place = (level - other_level) / (other_slope - slope)
            intersections += [place] if x[last] < place < x[last + 1] else []
    places = np.concatenate([x[gaps], x[gaps + 1], intersections])
    inner: Floats = places[(places > x[0]) & (places < x[-1])]
    return inner


def _fit(shape: Shape, x: Floats, y: Floats, place: float) -> Fit:
    centre, columns = float(x.mean()), [np.ones_like(x), x - x.mean()]
    if shape != "line":
        columns.append(_BASIS[shape](x, place))
    design = np.stack(columns, axis=1)
    coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
    rss = float(np.square(y - design @ coefficients).sum())
    # Residuals of zero would have an unbounded likelihood.
    noise = max(math.sqrt(rss / len(x)), _ROUNDING * float(np.abs(y).max()), 1e-150)
    bic = len(x) * (2 * math.log(noise) + 1 + math.log(2 * math.pi))
    bic += (3 if shape == "line" else 5) * math.log(len(x))
    level, slope, change = [*coefficients.tolist(), 0.0][:3]
    return Fit(shape, level - slope * centre, slope, change, place, rss, bic)


_BASIS: dict[str, Callable[[Floats, Floats | float], Floats]] = {
    "kink": lambda x, place: np.maximum(x - place, 0.0),
    "jump": lambda x, place: (x > place).astype(np.float64),
}
