"""Attention on impermissible items, and accuracy with and without them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import INK, MUTED, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.figures.violins import draw_violins, links_of
from attnlight.statistics.bootstrap import bootstrap_means

_MASSES = {"max_mass": "head with the most", "mass": "mean over heads"}
_ACCURACIES = {
    "accuracy_pad": "replaced by padding",
    "accuracy_unk": "replaced by unknown",
    "accuracy_delete": "deleted",
    "accuracy": "as trained",
}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Violins of the masses beside chance, and the accuracies; None without impermissible items."""
    if np.isnan(rows["mass"]).all():
        return None
    groups, defined = predicted_groups(rows["prediction"], classes), ~np.isnan(rows["mass"])
    names = [name for name in _ACCURACIES if name in rows and not np.isnan(rows[name]).all()]
    across, links = [-0.05, 1.05], links_of(rows)
    with canvas(1.4 + 0.5 * max(len(groups), len(names) - 1), groups) as figure:
        masses, accuracies = figure.subplots(1, 2)
        masses.set(xlabel="Attention on impermissible items", xlim=across)
        members = [(g.color, g.members & defined) for g in groups]
        violins = [[(c, rows[name][m], links[m]) for c, m in members] for name in _MASSES]
        draw_violins(masses, violins)
        masses.axvline(rows["chance"][defined].mean(), color=MUTED, linestyle="dashed", linewidth=1)
        masses.set_yticks(range(len(_MASSES)), list(_MASSES.values()))
        accuracies.set(xlabel="Accuracy", xlim=across, ylim=(-0.6, max(len(names), 1) - 0.4))
        columns = np.stack([rows[name] for name in names], axis=1) if names else np.empty((0, 0))
        for place, mean in enumerate(bootstrap_means(columns, rows["index"]) if names else ()):
            accuracies.hlines(place, mean.low, mean.high, INK, linewidth=1)
            accuracies.plot(mean.mean, place, "|", color=INK, ms=11, mew=1.5)
        accuracies.set_yticks(range(len(names)), [_ACCURACIES[name] for name in names])
        accuracies.grid(axis="x")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The means of masses, chance and accuracies."""
    words = {
        **{name: f"attention, {words}" for name, words in reversed(_MASSES.items())},
        "chance": "attention, uniform",
        **{name: f"accuracy, {words}" for name, words in reversed(_ACCURACIES.items())},
    }
    lines = [
        [label, *mean_cells([rows[name]], rows, [estimate])]
        for name, label in words.items()
        if name in rows and not np.isnan(rows[name]).all()
    ]
    without = int(np.isnan(rows["mass"]).sum())
    return [("impermissible", lines, {"without": without, "rows": len(rows["index"])})]
