"""How well each reading cites the items that an answer needs, beside chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.plausibility import draw_methods
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent

_PANELS = {"somers_d": "Somers' D", "lds": "LDS", "necessary": "Necessary", "auprc": "AUPRC"}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Means with intervals, and by predicted class; None where no context has two items."""
    methods = recorded_methods(rows, "lds")
    panels = {
        label: {words: rows[f"{measure}_{name}"] for name, words in methods.items()}
        for measure, label in _PANELS.items()
    }
    known = {
        label: values
        for label, values in panels.items()
        if all(not np.isnan(column).all() for column in values.values())
    }
    chances = [rows["chance_auprc"] if label == "AUPRC" else None for label in known]
    return draw_methods(rows, known, chances, classes) if known else None


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Measures of each reading, of all answers and of right ones where labels tell them."""
    drops = [name.removesuffix("_leave_one_out") for name in rows if name.startswith("drop_")]
    drops = list(dict.fromkeys(name for name in drops if f"{name}_leave_one_out" in rows))
    names = ("somers_d", "lds", *drops, "necessary", "sufficient", "auprc", "finds")
    formats = [estimate] * (2 + len(drops)) + [percent, percent, estimate, percent]
    nothing, right = np.full(len(rows["index"]), np.nan), rows["correct"] == 1
    lines = []
    for name, words in recorded_methods(rows, "lds").items():
        columns = [rows[f"{measure}_{name}"] for measure in names]
        of_right = [np.where(right, column, np.nan) for column in columns[:2]]
        lines.append(
            [words, *mean_cells([*columns, *of_right], rows, [*formats, estimate, estimate])]
        )
    chance = {"auprc": rows["chance_auprc"], "finds": rows["chance_finds"]}
    beside = [*(chance.get(name, nothing) for name in names), nothing, nothing]
    lines.append(["chance", *mean_cells(beside, rows, [*formats, estimate, estimate])])
    known = rows["correct"][~np.isnan(rows["correct"])]
    correct = f"{known.mean():.0%}" if len(known) else "an unknown share"
    shown = {"correct": correct, "prompts": float(np.nanmean(rows["prompts"]))}
    return [
        ("methods", lines, shown | {"top": ", ".join(name.removeprefix("drop_") for name in drops)})
    ]
