"""Comprehensiveness and sufficiency of attribution methods beside a random ranking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.style import INK, MUTED, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.statistics.bootstrap import bootstrap_means

_PANELS = {
    "comprehensiveness": "Comprehensiveness\n(higher is better)",
    "sufficiency": "Sufficiency\n(lower is better)",
}
_NORMALIZED = "normalized_"


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Means of each method by predicted class, and of all with their intervals."""
    groups = predicted_groups(rows["prediction"], classes)
    measures = [measure for measure in _PANELS if f"{measure}_random" in rows]
    methods = recorded_methods(rows, measures[0])
    with canvas(1.3 + 0.36 * len(methods), groups) as figure:
        panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
        for axes, measure in zip(panels, measures, strict=True):
            names = [f"{measure}_{method}" for method in methods]
            columns = np.stack([rows[name] for name in names], axis=1).astype(np.float64)
            means = bootstrap_means(columns, rows["index"])
            for place, (column, mean) in enumerate(zip(columns.T, means, strict=True)):
                for _, color, members in groups:
                    if not np.isnan(column[members]).all():
                        axes.plot(np.nanmean(column[members]), place, "o", color=color, ms=4.5)
                axes.hlines(place, mean.low, mean.high, INK, linewidth=1.2)
                axes.plot(mean.mean, place, "|", color=INK, ms=11, mew=1.4)
            random = means[names.index(f"{measure}_random")].mean
            axes.axvline(random, color=MUTED, ls="--", lw=1, label="random ranking")
            axes.set_xlabel(_PANELS[measure])
            axes.grid(axis="x")
        panels[0].set_yticks(range(len(methods)), list(methods.values()))
        panels[0].invert_yaxis()
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Each measure of each method and its excess over random, also normalised if recorded."""
    found: list[RecordTable] = []
    for prefix in ("", _NORMALIZED):
        measures = [measure for measure in _PANELS if f"{prefix}{measure}_random" in rows]
        if not measures:
            continue
        lines = []
        for method, words in recorded_methods(rows, f"{prefix}{measures[0]}").items():
            kinds = ("",) if method == "random" else ("", "excess_")
            names = [f"{kind}{prefix}{measure}_{method}" for measure in measures for kind in kinds]
            *cells, count = mean_cells(
                [rows[name] for name in names], rows, [estimate] * len(names)
            )
            cell_of = dict(zip(names, cells, strict=True))
            every = [f"{kind}{prefix}{m}_{method}" for m in _PANELS for kind in ("", "excess_")]
            lines.append([words, *(cell_of.get(name, "") for name in every), count])
        found.append((f"{prefix}methods", lines, {}))
    return found
