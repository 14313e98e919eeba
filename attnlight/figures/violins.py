"""Distributions of a measure: violins by maximum attention or predicted class, histograms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.style import GRID, INK, MUTED, Group, canvas, link_points, predicted_groups
from attnlight.figures.tables import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]

EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
MIN_FOR_DENSITY = 5  # values needed to estimate a density
_HALF, _MARGIN = 0.42, 0.55  # half height of a violin, margin beyond the last row (row distance 1)
_CELLS, _POINTS = 1_024, 161
_FILL = 0.72  # opacity at which quartile lines are visible on every colour, in light and dark mode
_APART, _LANE = 0.02, 0.1  # of points with a text, as a share of the axis and of a violin's height
_FLOOR = 2e-3  # smallest bandwidth as a share of the axis, so that equal values are visible


def violins_by_max_attention(
    rows: Rows,
    measure: str,
    label: str,
    limits: tuple[float, float],
    classes: Sequence[str] | None = None,
) -> Figure:
    """A measure in four equal bins of maximum attention, by predicted class.

    As in Jain & Wallace (2019): split violins for two classes, violins side by side for up to six,
    all classes pooled for more. Lines are quartiles; fewer than five values are drawn as points. Of
    the rows `max_attention`, `prediction`, the measure and, on a page, `link` (`link_points`) are
    read, each (R,); those where the measure is undefined are left out. `label` and `limits` are the
    name, with its unit, and the ends of the horizontal axis.
    """
    defined = ~(np.isnan(rows[measure]) | np.isnan(rows["max_attention"]))
    groups = predicted_groups(rows["prediction"][defined], classes)
    values, attention = rows[measure][defined], rows["max_attention"][defined]
    with canvas(bins_height(groups), groups) as figure:
        axes = figure.subplots()
        axes.set(xlabel=label, xlim=limits)
        draw_bins(axes, values, attention, groups, links_of(rows)[defined])
    return figure


def bins_height(groups: Sequence[Group]) -> float:
    """Height of a figure of violins by maximum attention, in inches."""
    return max(3.9, 0.9 + 0.62 * len(groups) * 1.6)


def links_of(rows: Rows) -> Floats:
    """The column `link` of the rows, (R,); NaN without one."""
    links: Floats = rows.get("link", np.full(len(rows["prediction"]), np.nan))
    return links


def draw_bins(
    axes: Axes, values: Floats, attention: Floats, groups: Sequence[Group], links: Floats
) -> None:
    """Violins of values (R,) in four equal bins of maximum attention (R,), for each group."""
    # A weight of exactly 1, or a hair above by rounding, belongs to the last bin.
    bins = np.digitize(attention, EDGES[1:-1])
    names = [f"[{low:g}, {high:g})" for low, high in pairwise(EDGES)]
    places = range(len(names))
    members = [[(bins == row) & g.members for g in groups] for row in places]
    colors = [group.color for group in groups]
    both = [[(values[m], links[m]) for m in row] for row in members]
    draw_violins(axes, [[(c, *b) for c, b in zip(colors, row, strict=True)] for row in both])
    axes.set_yticks(places, [*names[:-1], f"{names[-1][:-1]}]"])
    axes.set_ylabel("Maximum attention weight")
    for row in places[1:]:
        axes.axhline(row - 0.5, color=GRID, linewidth=0.6, zorder=0)


def draw_violins(axes: Axes, rows: Sequence[Sequence[tuple[str, Floats, Floats]]]) -> None:
    """Rows of violins from the bottom up, with the number of values of each at the right.

    The limits of the horizontal axis are set. Each violin has a colour, values without NaN, and the
    links of the values.
    """
    extent = float(np.ptp(axes.get_xlim()))
    floor, beside = _FLOOR * extent, axes.get_yaxis_transform()
    for row, violins in enumerate(rows):
        half = _HALF / len(violins)
        for k, (color, values, links) in enumerate(violins):
            # Two violins share a base line, the first above it; more are stacked.
            base, sides = row + _HALF - half * (2 * k + 1), (-0.92 * half, 0.92 * half)
            if len(violins) == 2:
                base, sides = row, (-_HALF * k, _HALF * (1 - k))
            middle = base + sum(sides) / 2
            values = values.astype(np.float64)
            if len(values) < MIN_FOR_DENSITY:
                axes.plot(values, [middle] * len(values), "o", ms=4, mfc=color, mec=INK, mew=0.6)
            else:
                grid, height = density(values, floor)
                low, high = (base + side * (height / height.max()) for side in sides)
                axes.fill_between(grid, low, high, facecolor=color, alpha=_FILL, linewidth=0)
                outline = np.r_[grid, grid[::-1], grid[0]], np.r_[low, high[::-1], low[0]]
                axes.plot(*outline, color=INK, lw=0.7)
                for share, style in ((0.25, ":"), (0.5, "-"), (0.75, ":")):
                    quantile = np.quantile(values, share)
                    ends = [np.interp(quantile, grid, low), np.interp(quantile, grid, high)]
                    axes.plot([quantile] * 2, ends, style, color=INK, lw=1.1, solid_capstyle="butt")
            lanes = _lanes(values, ~np.isnan(links), _APART * extent)
            lane = min(_LANE, 0.5 / max(1.0, np.abs(lanes).max(initial=0)))  # all within its height
            link_points(axes, values, middle + lane * (sides[1] - sides[0]) * lanes, links)
            count = axes.text(1.01, middle, f"n = {len(values):,}", transform=beside, va="center")
            count.set(fontsize=8, color=INK if len(values) else MUTED)
    axes.set_ylim(-_MARGIN, len(rows) - 1 + _MARGIN)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _lanes(values: Floats, shown: NDArray[np.bool_], apart: float) -> NDArray[np.float64]:
    """Lane of each value, so that no two that are shown are closer than `apart` in a lane, (P,).

    Lanes are 0, 1, -1, 2, -2 and so on; each value takes the first that is free.
    """
    lanes, ends = np.zeros(len(values)), list[float]()
    for place in np.flatnonzero(shown)[np.argsort(values[shown], kind="stable")]:
        free = [lane for lane, end in enumerate(ends) if values[place] - end >= apart]
        lane = free[0] if free else len(ends)
        ends[lane : lane + 1] = [float(values[place])]
        lanes[place] = (lane + 1) // 2 * (1 if lane % 2 else -1)
    return lanes


def density(values: Floats, floor: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gaussian kernel estimate with Scott's bandwidth, cut at the smallest and largest value.

    At least two values are counted in 1,024 cells first, so that the cost does not grow with their
    number. The bandwidth is at least `floor`. Returned are the points of evaluation (P,) and the
    density there (P,).
    """
    width = max(float(np.std(values, ddof=1)) * len(values) ** -0.2, floor)
    low, high = float(values.min()), float(values.max())
    if high - low < floor:
        low, high = low - 2 * width, high + 2 * width
    counts, edges = np.histogram(values, _CELLS, (low, high))
    filled = counts > 0
    centres, counts = ((edges[:-1] + edges[1:]) / 2)[filled], counts[filled]
    grid = np.linspace(low, high, _POINTS)
    kernel = np.exp(-0.5 * ((grid[:, None] - centres) / width) ** 2)
    return grid, kernel @ counts / (len(values) * width * np.sqrt(2 * np.pi))


def draw_histograms(
    axes: Axes, values: Floats, groups: Sequence[Group], edges: NDArray[np.float64]
) -> None:
    """Shares of each group's defined values by bin, with outlines so that no group is hidden."""
    for group in groups:
        defined = values[group.members & ~np.isnan(values)]
        shares = np.histogram(defined, edges)[0] / max(len(defined), 1)
        axes.stairs(shares, edges, fill=True, color=group.color, alpha=0.35)
        axes.stairs(shares, edges, color=group.color, linewidth=1.2)


def draw_taus(axes: Axes, tau: Floats, groups: Sequence[Group]) -> None:
    """Histograms of correlations from -1 to 1, with a line at each group's mean and at 0."""
    draw_histograms(axes, tau, groups, np.linspace(-1, 1, 31))
    for group in groups:
        if not np.isnan(tau[group.members]).all():
            axes.axvline(float(np.nanmean(tau[group.members])), color=group.color, linewidth=1.4)
    axes.axvline(0, color=INK, linewidth=0.6, zorder=0)
    axes.set_ylim(bottom=0, auto=True)  # of panels that share an axis the highest bar counts
