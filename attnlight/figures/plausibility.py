"""Plausibility of each attribution method, beside chance and people."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

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
    columns.pop("chance")
    panels = {
        label: {words: rows[names[panel]] for words, names in columns.items()}
        for panel, label in enumerate(_PANELS.values())
    }
    return draw_methods(rows, panels, [rows[f"chance_{x}"] for x in _PANELS], classes)


def draw_methods(
    rows: Rows,
    panels: Mapping[str, Mapping[str, NDArray[np.floating]]],
    chances: Sequence[NDArray[np.floating] | None],
    classes: Sequence[str] | None,
    chance: str = "chance",
    shares: bool = True,
) -> Figure:
    """Panels of means with intervals by explanation, and points by predicted class.

    `panels` are values (R,) by explanation, by the label of each panel, and `chances` those of
    chance in each panel, or None; `shares` are between 0 and 1.
    """
    names = list(next(iter(panels.values())))[::-1]
    groups = predicted_groups(rows["prediction"], classes)
    with canvas(1.3 + 0.36 * len(names), groups) as figure:
        subplots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (label, by_name), level in zip(subplots, panels.items(), chances, strict=True):
            values = [by_name[name] for name in names]
            stacked = np.stack([*values, values[0] if level is None else level], axis=1)
            *means, of_chance = bootstrap_means(stacked.astype(np.float64), rows["index"])
            for place, (column, mean) in enumerate(zip(values, means, strict=True)):
                for _, color, members in groups:
                    if not np.isnan(column[members]).all():
                        axes.plot(np.nanmean(column[members]), place, "o", color=color, ms=6)
                axes.hlines(place, mean.low, mean.high, INK, linewidth=1)
                axes.plot(mean.mean, place, "|", color=INK, ms=11, mew=1.5)
            if level is not None:
                axes.axvline(of_chance.mean, color=MUTED, ls="dashed", lw=1, label=chance)
            axes.set_xlabel(label)
            if shares:
                axes.set(xlim=(-0.03, 1.03), xticks=(0, 0.5, 1))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(axis="x")
            axes.tick_params(axis="y", length=0)
        subplots[0].set_yticks(range(len(names)), names)
        subplots[0].set_ylim(-0.6, len(names) - 0.4)
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The means of each method, of people and of chance."""
    lines = [
        [name, *mean_cells([rows[column] for column in columns], rows, [estimate] * len(columns))]
        for name, columns in columns_of(rows).items()
    ]
    without = int(np.isnan(rows["chance_auprc"]).sum())
    return [("plausibility", lines, {"without": without, "rows": len(rows["index"])})]
