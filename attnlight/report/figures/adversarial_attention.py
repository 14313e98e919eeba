"""The histogram and violins of Jain & Wallace for adversarial attention, and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.style import INK, MUTED, Group, canvas, predicted_groups
from attnlight.report.tables import Described, Rows, estimate, mean_cells, number, percent
from attnlight.report.violins import bins_height, draw_bins, draw_histograms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EDGES = np.linspace(0.0, 0.7, 41)  # the paper's bins
_VERY_DIFFERENT = 0.6
_POINTS = 200


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Histogram and violins of the largest divergence, and the frontier where the record has it."""
    measured = ~np.isnan(rows["worst_js"])
    kept = {name: values[measured] for name, values in rows.items()}
    kept = {name: values for name, values in kept.items() if not np.isnan(values).all()}
    if "worst_js" not in kept:
        return None
    groups = predicted_groups(kept["prediction"], classes)
    share = float(np.nanmean(kept["worst_share"])) if "worst_share" in kept else np.nan
    heights = [2.5, bins_height(groups)] + [2.8] * ("frontier_js" in kept)
    with canvas(sum(heights), groups) as figure:
        top, below, *last = figure.subplots(len(heights), 1, height_ratios=heights)
        for axes in (top, below):
            axes.set(xlim=(-0.05, 0.7), xlabel="Largest divergence of attention (nats)")
        draw_histograms(top, kept["worst_js"], groups, _EDGES)
        if "search_js" in kept:
            found = kept["search_js"][~np.isnan(kept["search_js"])]
            bars = np.histogram(found, _EDGES)[0] / len(found)
            top.stairs(bars, _EDGES, color=MUTED, ls="--", label="found by search, all classes")
            top.legend(loc="upper left")
        top.set_title(f"mean share of the largest divergence possible: {number(share)}", fontsize=9)
        top.set_ylabel("Share of texts")
        top.grid(axis="y")
        draw_bins(below, kept["worst_js"], kept["max_attention"], groups)
        for axes in last:
            _frontier(axes, kept)
    return figure


def _frontier(axes: Axes, rows: Rows) -> None:
    """The largest mean divergence at each mean change of the prediction, at 200 points."""
    from attnlight.statistics.frontier import EPSILONS, frontier

    # Closer at the left, where the curve rises.
    points = EPSILONS[-2] * np.linspace(0, 1, _POINTS) ** 2
    js = np.interp(points, *frontier(rows["frontier_js"], np.array(EPSILONS)))
    axes.fill_between(points, js, 1.0, color=MUTED, alpha=0.15, linewidth=0)
    axes.plot(points, js, color=INK, label="no attention lies above")
    for name, marker, words in (
        ("worst", "P", "largest at epsilon, mean"),
        ("search", "X", "found by search, mean"),
    ):
        if f"{name}_js" in rows:
            at = [np.nanmean(rows[f"{name}_{what}"]) for what in ("tvd", "js")]
            axes.plot(*at, marker, ms=8, mfc=INK, mec="white", mew=0.8, ls="", label=words)
    axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
    axes.set(xlim=(-0.01, points[-1]), ylim=(0, np.log(2) + 0.035))
    axes.set_xlabel("Mean total variation distance of the prediction")
    axes.set_ylabel("Mean divergence (nats)")
    axes.legend(loc="lower right")


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[Described]:
    """The largest divergence with its share, and the search against it on the same texts."""
    groups = predicted_groups(rows["prediction"], classes)
    everything = Group("all", INK, np.ones(len(rows["prediction"]), dtype=bool))
    js = rows["worst_js"].astype(np.float64)
    far = np.where(np.isnan(js), np.nan, js > _VERY_DIFFERENT)
    asked = {"worst": [js, rows["worst_share"], far, rows["upper_js"]]}
    if not np.isnan(rows.get("search_js", np.nan)).all():
        exact = np.where(np.isnan(rows["search_js"]), np.nan, js)
        asked["search"] = [exact, *(rows[f"search_{name}"] for name in ("js", "gap", "tvd"))]
    found: list[Described] = []
    for table, columns in asked.items():
        formats = [percent if column is far else estimate for column in columns]
        lines = []
        for name, _, members in [everything, *groups] if len(groups) > 1 else [everything]:
            own = [np.where(members, column, np.nan) for column in columns]
            lines.append([name, *mean_cells(own, rows, formats)])
        found.append((table, lines, {}))
    return found
