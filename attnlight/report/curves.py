"""What changed from epoch to epoch on the validation split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.style import COLUMN_WIDTH, PALETTE, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_curves(curves: Mapping[str, Sequence[tuple[float, float, float, float]]]) -> Figure:
    """One small panel for each curve, two to a row: a line with a band of its intervals.

    Args:
        curves: Points by the name of their curve: epoch, value, and the ends of its interval, NaN
            where it has none.
    """
    from matplotlib.ticker import MaxNLocator

    rows = (len(curves) + 1) // 2
    with styled():
        figure = new_figure(COLUMN_WIDTH, 1.75 * rows + 0.2)
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        for axes, (name, points) in zip(panels, curves.items(), strict=False):
            epochs, values, lows, highs = np.array(points, dtype=np.float64).T
            known = np.isfinite(lows)
            band = epochs[known], lows[known], highs[known]
            if known.sum() == 1:
                axes.vlines(*band, color=PALETTE[0], linewidth=1)
            elif known.any():
                axes.fill_between(*band, color=PALETTE[0], alpha=0.22, linewidth=0)
            axes.plot(epochs, values, "o-", color=PALETTE[0], markersize=3.5)
            axes.set_title(name, loc="left")
            axes.set_xlabel("Epoch")
            axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
    return figure
