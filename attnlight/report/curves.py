"""What changed from epoch to epoch on the validation split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.style import COLUMN_WIDTH, PALETTE, new_figure, styled
from attnlight.report.summary import RecordSummary

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


def metric_curves(logged: Mapping[str, Mapping[int, float]]) -> dict[str, list[Point]]:
    """The task's metrics by epoch."""
    return {name: [Point(*point) for point in points.items()] for name, points in logged.items()}


def test_curves(summaries: Sequence[RecordSummary]) -> dict[str, list[Point]]:
    """The measures of one test by epoch, from its validation records in order of epoch."""
    curves: dict[str, list[Point]] = {}
    for part in summaries:
        for line in part.lines:
            if line.predicted is None and part.record.epoch is not None:
                point = Point(part.record.epoch, line.mean, line.low, line.high)
                curves.setdefault(line.measure, []).append(point)
    return curves


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
    from matplotlib.ticker import MaxNLocator

    epochs = [point.epoch for point in points]
    _intervals(axes, points)
    axes.plot(epochs, [point.value for point in points], "o-", color=PALETTE[0], markersize=3.5)
    axes.set_title(name, loc="left")
    axes.set_xlabel("Epoch")
    axes.set_xlim(min(epochs) - 0.5, max(epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _intervals(axes: Axes, points: Sequence[Point]) -> None:
    """A band; a line where there is only one epoch."""
    known = [point for point in points if math.isfinite(point.low)]
    at = [point.epoch for point in known]
    lows, highs = [point.low for point in known], [point.high for point in known]
    if len(known) == 1:
        axes.vlines(at, lows, highs, color=PALETTE[0], linewidth=1)
    elif known:
        axes.fill_between(at, lows, highs, color=PALETTE[0], alpha=0.22, linewidth=0)
