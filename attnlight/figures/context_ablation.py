"""How well each reading cites the items that an answer needs, beside chance."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import method_panels, recorded_methods
from attnlight.figures.plausibility import draw_methods
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, number, percent

_FORMATS = dict.fromkeys(("necessary", "sufficient", "finds"), percent)
_FORMATS["passes"] = lambda mean: f"{mean.mean:.3g}".replace("nan", number(np.nan))
_PANELS = {"somers_d": "Somers' D", "lds": "LDS", "necessary": "Necessary", "auprc": "AUPRC"}


def draw(rows: Rows, classes: Sequence[str] | None = None, **_: object) -> Figure | None:
    """Means with intervals, and by predicted class; None where no context has two items."""
    known = {
        label: values
        for label, values in method_panels(rows, _PANELS, "lds").items()
        if all(not np.isnan(column).all() for column in values.values())
    }
    chances = [rows["chance_auprc"] if label == "AUPRC" else None for label in known]
    return draw_methods(rows, known, chances, classes) if known else None


def tables(
    rows: Rows, classes: Sequence[str] | None = None, heads: Sequence[Sequence[float]] | None = None
) -> list[RecordTable]:
    """What each reading predicts and costs, what it cites, of right answers too, and the learned heads."""
    names = [name.removesuffix("_leave_one_out") for name in rows if name.startswith("drop_")]
    drops = [name for name in dict.fromkeys(names) if f"{name}_leave_one_out" in rows]
    known = rows["correct"][~np.isnan(rows["correct"])]
    correct = f"{known.mean():.0%}".replace("%", " %") if len(known) else "an unknown share"
    shown = {"correct": correct, "prompts": float(np.nanmean(rows["prompts"]))}
    shown["top"] = ", ".join(name.removeprefix("drop_") for name in drops)
    measures = {
        "methods": ["somers_d", "lds", "passes"],
        "citations": ["necessary", "sufficient", "finds", "auprc"],
        "more": ["right_somers_d", "right_lds", *drops],
    }
    found: list[RecordTable] = [
        (table, _lines(rows, columns), shown) for table, columns in measures.items()
    ]
    named = [
        [f"layer {layer:.0f}, head {head:.0f}", *map(number, others)]
        for layer, head, *others in heads or ()
    ]
    return [*found, *([("heads", named, {})] if named else [])]


def _lines(rows: Rows, measures: Sequence[str]) -> list[list[str]]:
    """Means of measures of each method, and of chance; `right_` begins those of right answers alone."""
    right, nothing = rows["correct"] == 1, np.full(len(rows["index"]), np.nan)
    formats = [_FORMATS.get(name, estimate) for name in measures]
    lines = []
    for label, words in {**recorded_methods(rows, "lds"), "": "chance"}.items():
        columns = []
        for name in measures:
            of_right = name.startswith("right_")
            column = f"{name.removeprefix('right_')}_{label}" if label else f"chance_{name}"
            columns.append(np.where(right | (not of_right), rows.get(column, nothing), np.nan))
        lines.append([words, *mean_cells(columns, rows, formats)])
    return lines if any(f"chance_{name}" in rows for name in measures) else lines[:-1]
