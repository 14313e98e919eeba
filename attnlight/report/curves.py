"""What changed from epoch to epoch on the validation split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.style import COLUMN_WIDTH, PALETTE, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """A value after one epoch, with its interval, NaN where it has none."""

    epoch: int
    value: float
    low: float = math.nan
    high: float = math.nan


Curves = Mapping[str, Sequence[Point]]


def draw_curves(curves: Curves) -> Figure:
    """One small panel for each curve, two to a row."""
    rows = (len(curves) + 1) // 2
    with styled():
        figure = new_figure(COLUMN_WIDTH, 1.75 * rows + 0.2)
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes, (name, points) in zip(panels, curves.items(), strict=False):
            _panel(axes, name, points)
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
    return figure


def _panel(axes: Axes, name: str, points: Sequence[Point]) -> None:
    """A line with a band of its intervals; of a single interval a line too."""
    from matplotlib.ticker import MaxNLocator

    known = [point for point in points if math.isfinite(point.low)]
    at, lows, highs = ([point[k] for point in known] for k in (0, 2, 3))
    if len(known) == 1:
        axes.vlines(at, lows, highs, color=PALETTE[0], linewidth=1)
    elif known:
        axes.fill_between(at, lows, highs, color=PALETTE[0], alpha=0.22, linewidth=0)
    epochs, values = ([point[k] for point in points] for k in (0, 1))
    axes.plot(epochs, values, "o-", color=PALETTE[0], markersize=3.5)
    axes.set_title(name, loc="left")
    axes.set_xlabel("Epoch")
    axes.set_xlim(min(epochs) - 0.5, max(epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
