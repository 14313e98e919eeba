"""Attention on the evidence beside chance, of all instances and of those where it is the reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures.style import MUTED, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent
from attnlight.figures.violins import draw_violins, links_of

_PANELS = {
    "mass": ("chance", "Attention on the evidence"),
    "auprc": ("chance_auprc", "AUPRC of attention"),
}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Violins of attention on the evidence and of its AUPRC; None where no instance has any."""
    if np.isnan(rows["mass"]).all():
        return None
    groups, subsets = predicted_groups(rows["prediction"], classes), subsets_of(rows)
    across, links = [-0.05, 1.05], links_of(rows)
    with canvas(1.2 + (0.45 + 0.35 * len(groups)) * len(subsets), groups) as figure:
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure, (chance, label)) in zip(panels, _PANELS.items(), strict=True):
            axes.set(xlabel=label, xlim=across)
            defined = ~np.isnan(rows[measure])
            parts = [members & defined for members in reversed(subsets.values())]
            violins = [
                [(g.color, rows[measure][g.members & m], links[g.members & m]) for g in groups]
                for m in parts
            ]
            draw_violins(axes, violins)
            line: dict[str, Any] = {"linestyles": "dashed", "label": "chance", "linewidth": 1}
            for place, members in enumerate(parts):
                if members.any():
                    mean = rows[chance][members].mean()
                    axes.vlines(mean, place - 0.5, place + 0.5, MUTED, **line)
        panels[0].set_yticks(range(len(subsets)), list(subsets)[::-1])
    return figure


def subsets_of(rows: Rows) -> dict[str, NDArray[np.bool_]]:
    """All instances and, where it was measured, those whose evidence is proven to be the reason."""
    subsets = {"all": np.ones(len(rows["index"]), dtype=bool)}
    if "proven" in rows:
        subsets |= {"proven": rows["proven"] == 1, "not proven": rows["proven"] == 0}
    return subsets


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Attention on the evidence, top item and AUPRC of all and of proven instances."""
    lines, note = [], ""
    names = ("mass", "chance", "top_in_evidence", "chance", "auprc", "chance_auprc")
    formats = [estimate, estimate, percent, percent, estimate, estimate]
    for name, members in subsets_of(rows).items():
        columns = [np.where(members, rows[column], np.nan) for column in names]
        lines.append([name, *mean_cells(columns, rows, formats)])
    if "proven" in rows:
        unknown = int(np.isnan(rows["proven"]).sum())
        note = (
            " Proven: every swap of the answer's name in the evidence changes the prediction, and "
            f"none of the classes' names outside. Swaps are undefined for {unknown:,} instances, "
            "whose evidence does not name the answer."
        )
    counts = {"without": int(np.isnan(rows["mass"]).sum()), "rows": len(rows["index"])}
    return [("beside_chance", lines, counts | {"proven": note})]
