"""The heat map of agreement between attribution methods."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from attnlight.figures.methods import method_words
from attnlight.figures.style import PALETTE, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent

_TIED = "tied_"  # prefix of a column that each method has
_DARK, _LIGHT = "#101418", "#fbfbfb"  # numbers on cells, which are alike on light and dark pages


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Mean tau of each pair of methods as a heat map; it has no classes."""
    methods = _methods(rows)
    size = len(methods)
    grid = np.full((size, size), np.nan)
    for one, other in combinations(range(size), 2):
        tau = rows[f"tau_{methods[one]}_{methods[other]}"]
        if not np.isnan(tau).all():
            grid[one, other] = grid[other, one] = np.nanmean(tau)
    colors = LinearSegmentedColormap.from_list("tau", [PALETTE[5], "#f4f5f6", PALETTE[0]])
    scale = Normalize(-1, 1)
    with canvas(1.5 + 0.36 * size) as figure:
        axes = figure.subplots()
        axes.pcolormesh(np.ma.masked_invalid(grid), cmap=colors, norm=scale)
        for row, column in np.argwhere(~np.isnan(grid)):
            value = grid[row, column]
            ink = _LIGHT if abs(value) > 0.7 else _DARK
            cell = f"{value:z.2f}"
            middle = column + 0.5, row + 0.5
            axes.text(*middle, cell, color=ink, fontsize=8, ha="center", va="center")
        names = [method_words(method) for method in methods]
        places = np.arange(size) + 0.5
        axes.set_xticks(places, names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_yticks(places, names)
        axes.tick_params(length=0)
        axes.invert_yaxis()
        axes.set_title("Kendall's tau-b", loc="left")
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Agreement of each pair by all measures, and how often each method ranks nothing."""
    lines, measures = [], ("tau", "spearman", "pearson", "js", "overlap")
    for pair in combinations(_methods(rows), 2):
        columns = [rows[f"{measure}_{'_'.join(pair)}"] for measure in measures]
        undefined = f"{100 * np.isnan(columns[0]).mean():.1f}"
        cells = mean_cells(columns, rows, [*[estimate] * 4, percent])
        lines.append([" and ".join(map(method_words, pair)), *cells[:-1], undefined, cells[-1]])
    chance = rows["chance_overlap"]
    mean = float(np.nanmean(chance)) if not np.isnan(chance).all() else np.nan
    tied = ", ".join(
        f"{method_words(method)} {100 * rows[_TIED + method].mean():.1f} %"
        for method in _methods(rows)
    )
    return [("pairs", lines, {"chance": f"{100 * mean:.1f}", "tied": tied})]


def _methods(rows: Rows) -> list[str]:
    """Labels of the methods, in their order."""
    return [name.removeprefix(_TIED) for name in rows if name.startswith(_TIED)]
