"""Plausibility of each attribution method, beside chance and people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.style import INK, MUTED, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.statistics.bootstrap import bootstrap_means

_PANELS = {"auprc": "AUPRC", "token_f1": "Token F1", "iou_f1": "IoU F1"}


def columns_of(rows: Rows) -> dict[str, list[str]]:
    """The three columns of each method, of people where they were compared, and of chance."""
    columns = {
        words: [f"{measure}_{name}" for measure in _PANELS]
        for name, words in recorded_methods(rows, "auprc").items()
    }
    beside = {"people": "human", "chance": "chance"}
    return columns | {
        name: [f"{source}_{measure}" for measure in _PANELS]
        for name, source in beside.items()
        if f"{source}_auprc" in rows
    }


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Means with intervals, and by predicted class; None where no instance has a rationale."""
    if np.isnan(rows["chance_auprc"]).all():
        return None
    columns = columns_of(rows)
    names = [name for name in columns if name != "chance"][::-1]
    groups = predicted_groups(rows["prediction"], classes)
    with canvas(1.3 + 0.36 * len(names), groups) as figure:
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for panel, (axes, label) in enumerate(zip(panels, _PANELS.values(), strict=True)):
            values = [rows[columns[name][panel]] for name in (*names, "chance")]
            *means, chance = bootstrap_means(np.stack(values, axis=1), rows["index"])
            for place, (column, mean) in enumerate(zip(values, means, strict=False)):
                for _, color, members in groups:
                    if not np.isnan(column[members]).all():
                        axes.plot(np.nanmean(column[members]), place, "o", color=color, ms=6)
                axes.hlines(place, mean.low, mean.high, INK, linewidth=1)
                axes.plot(mean.mean, place, "|", color=INK, ms=11, mew=1.5)
            axes.axvline(chance.mean, color=MUTED, ls="dashed", lw=1, label="chance")
            axes.set(xlabel=label, xlim=(-0.03, 1.03), xticks=(0, 0.5, 1))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(axis="x")
            axes.tick_params(axis="y", length=0)
        panels[0].set_yticks(range(len(names)), names)
        panels[0].set_ylim(-0.6, len(names) - 0.4)
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The means of each method, of people and of chance."""
    lines = [
        [name, *mean_cells([rows[column] for column in columns], rows, [estimate] * len(columns))]
        for name, columns in columns_of(rows).items()
    ]
    without = int(np.isnan(rows["chance_auprc"]).sum())
    return [("plausibility", lines, {"without": without, "rows": len(rows["index"])})]
