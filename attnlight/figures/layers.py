"""Measures by layer and head: heat maps and lines."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from attnlight.figures.style import MUTED, PALETTE
from attnlight.figures.tables import Rows
from attnlight.statistics.bootstrap import defined_mean


def draw_heads(
    figure: Figure,
    panels: Sequence[Axes],
    rows: Rows,
    columns: Mapping[str, tuple[str, str]],
    label: str,
) -> None:
    """Heat maps of a measure's means by layer (from the bottom up) and head, on one scale from 0.

    `columns` are, by title, those of heads (R, L H) and of layers (R, L); the scale is named
    `label`.
    """
    grids = {}
    for title, (heads, layers) in columns.items():
        grids[title] = defined_mean(rows[heads].T).reshape(rows[layers].shape[1], -1)
    top = max(float(np.nanmax(grid, initial=0.0)) for grid in grids.values())
    colors = LinearSegmentedColormap.from_list("heads", ["#f4f5f6", PALETTE[0]])
    for axes, (title, grid) in zip(panels, grids.items(), strict=True):
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(grid), cmap=colors, norm=Normalize(0, top or 1.0)
        )
        for axis, count in ((axes.yaxis, grid.shape[0]), (axes.xaxis, grid.shape[1])):
            numbers = np.arange(0, count, max(1, -(-count // 6)))
            axis.set_ticks(numbers + 0.5, [str(number + 1) for number in numbers])
        axes.set_title(title, loc="left")
        axes.set_xlabel("Head")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    panels[0].set_ylabel("Layer")
    figure.colorbar(mesh, ax=list(panels), label=label, aspect=30)


def draw_layers(
    axes: Axes, rows: Rows, lines: Mapping[str, tuple[str, str]], every: float | None = None
) -> None:
    """Lines of a measure's means by layer.

    `lines` are, by name, the colour and the column (R, L) of each; `every`, the measure for all
    layers together, is a dashed line.
    """
    count, highest = 1, 0.0 if every is None or np.isnan(every) else every
    for name, (color, column) in lines.items():
        means = defined_mean(rows[column].T)
        count = len(means)
        axes.plot(range(1, count + 1), means, "o-", color=color, label=name, markersize=4)
        highest = max(highest, float(np.nanmax(means, initial=0.0)))
    if every is not None:
        axes.axhline(every, color=MUTED, linestyle="dashed", linewidth=1, label="all layers")
    numbers = range(1, count + 1, max(1, -(-count // 6)))
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.set(xlabel="Layer", xlim=(0.5, count + 0.5), ylim=(0, 1.05 * (highest or 1.0)))
    axes.grid(axis="y")
