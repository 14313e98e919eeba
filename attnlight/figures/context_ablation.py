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
    """What decides of each reading and, in a second table, what it finds, of right answers too."""
    methods, right = recorded_methods(rows, "lds"), rows["correct"] == 1
    drops = [name.removesuffix("_leave_one_out") for name in rows if name.startswith("drop_")]
    drops = [name for name in dict.fromkeys(drops) if f"{name}_leave_one_out" in rows]
    nothing = np.full(len(rows["index"]), np.nan)
    chance = {"auprc": rows["chance_auprc"], "finds": rows["chance_finds"]}
    known = rows["correct"][~np.isnan(rows["correct"])]
    correct = f"{known.mean():.0%}".replace("%", " %") if len(known) else "an unknown share"
    shown = {"correct": correct, "prompts": float(np.nanmean(rows["prompts"]))}
    shown["top"] = ", ".join(name.removeprefix("drop_") for name in drops)
    found: list[RecordTable] = []
    for table, names in {
        "methods": ["somers_d", "lds", "necessary", "finds"],
        "more": ["sufficient", "auprc", *drops, "right_somers_d", "right_lds"],
    }.items():
        formats = [
            percent if x in ("necessary", "finds", "sufficient") else estimate for x in names
        ]
        lines = []
        for label, words in {**methods, "": "chance"}.items():
            columns = [
                chance.get(name, nothing)
                if not label
                else np.where(
                    right | (not name.startswith("right_")),
                    rows[f"{name.removeprefix('right_')}_{label}"],
                    np.nan,
                )
                for name in names
            ]
            lines.append([words, *mean_cells(columns, rows, formats)])
        found.append((table, lines, shown))
    return found
