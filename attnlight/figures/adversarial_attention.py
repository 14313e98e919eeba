"""The histogram and violins of Jain & Wallace for adversarial attention, and its frontier."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlight.figures.style import INK, MUTED, Group, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, number, percent
from attnlight.figures.violins import bins_height, draw_bins, draw_histograms, links_of
from attnlight.statistics.frontier import EPSILONS, frontier

_EDGES = np.linspace(0.0, 0.7, 41)  # the paper's bins
_VERY_DIFFERENT = 0.6
_POINTS = 200
_POINTS_DRAWN = [
    ("worst", "P", "largest at epsilon, mean"),
    ("search", "X", "found by search, mean"),
]


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Histogram and violins of the worst-case divergence, and the frontier if recorded."""
    measured = ~np.isnan(rows["worst_js"])
    columns = {name: values[measured] for name, values in rows.items()}
    columns = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    if "worst_js" not in columns:
        return None
    groups = predicted_groups(columns["prediction"], classes)
    share = float(np.nanmean(columns["worst_share"])) if "worst_share" in columns else np.nan
    heights = [2.5, bins_height(groups)] + [2.8] * ("frontier_js" in columns)
    with canvas(sum(heights), groups) as figure:
        top, below, *last = figure.subplots(len(heights), 1, height_ratios=heights)
        for axes in (top, below):
            axes.set(xlim=(-0.05, 0.7), xlabel="Largest divergence of attention (nats)")
        draw_divergences(top, columns, groups)
        if "search_js" in columns:
            top.legend(loc="upper left")
        top.set_title(f"mean share of the largest divergence possible: {number(share)}", fontsize=9)
        top.set_ylabel("Share of texts")
        top.grid(axis="y")
        attention, links = columns["max_attention"], links_of(rows)[measured]
        draw_bins(below, columns["worst_js"], attention, groups, links)
        for axes in last:
            # The maximum mean divergence against the mean change of the prediction; points are denser
            # at the left, where the curve rises.
            points = EPSILONS[-2] * np.linspace(0, 1, _POINTS) ** 2
            js = np.interp(points, *frontier(columns["frontier_js"], np.array(EPSILONS)))
            axes.fill_between(points, js, 1.0, color=MUTED, alpha=0.15, linewidth=0)
            axes.plot(points, js, color=INK, label="no attention lies above")
            for name, marker, words in _POINTS_DRAWN:
                if f"{name}_js" in columns:
                    point = [np.nanmean(columns[f"{name}_{measure}"]) for measure in ("tvd", "js")]
                    mark: dict[str, Any] = {"ms": 8, "mfc": INK, "mec": "white", "mew": 0.8}
                    axes.plot(*point, marker, ls="", label=words, **mark)
            axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
            axes.set(xlim=(-0.01, points[-1]), ylim=(0, np.log(2) + 0.035))
            axes.set_xlabel("Mean total variation distance of the prediction")
            axes.set_ylabel("Mean divergence (nats)")
            axes.legend(loc="lower right")
    return figure


def draw_divergences(axes: Axes, rows: Rows, groups: Sequence[Group]) -> None:
    """Histograms of the worst-case divergence by group, and of the search's over all rows.

    The columns are `worst_js` and, where the search was asked for, `search_js`, in nats, (R,).
    """
    draw_histograms(axes, rows["worst_js"], groups, _EDGES)
    if "search_js" in rows:
        searched = rows["search_js"][~np.isnan(rows["search_js"])]
        bars = np.histogram(searched, _EDGES)[0] / len(searched)
        axes.stairs(bars, _EDGES, color=MUTED, ls="--", label="found by search, all classes")


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Worst-case divergence and its share of the maximum, and the search on the same texts."""
    groups = predicted_groups(rows["prediction"], classes)
    all_rows = Group("all", INK, np.ones(len(rows["prediction"]), dtype=bool))
    js = rows["worst_js"].astype(np.float64)
    different = np.where(np.isnan(js), np.nan, js > _VERY_DIFFERENT)
    columns_by_table = {"worst": [js, rows["worst_share"], different, rows["upper_js"]]}
    if not np.isnan(rows.get("search_js", np.nan)).all():
        exact = np.where(np.isnan(rows["search_js"]), np.nan, js)
        searched = (rows[f"search_{name}"] for name in ("js", "gap", "tvd"))
        columns_by_table["search"] = [exact, *searched]
    result: list[RecordTable] = []
    for table, columns in columns_by_table.items():
        formats = [percent if column is different else estimate for column in columns]
        lines = []
        for name, _, members in [all_rows, *groups] if len(groups) > 1 else [all_rows]:
            in_group = [np.where(members, column, np.nan) for column in columns]
            lines.append([name, *mean_cells(in_group, rows, formats)])
        result.append((table, lines, {}))
    return result
