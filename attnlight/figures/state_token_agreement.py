"""Erasure of states beside deletion of tokens, and hidden token attribution by length."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import MUTED, PALETTE, canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, class_name, estimate, mean_cells, percent
from attnlight.figures.violins import draw_taus

_BINS = 12  # of the number of items, with about equally many texts


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Histogram of tau by predicted class, and attribution to the own token by number of items."""
    groups, tau = predicted_groups(rows["prediction"], classes), rows["tau_erasure_deletion"]
    with canvas(4.4, groups) as figure:
        top, bottom = figure.subplots(2, 1)
        draw_taus(top, tau, groups)
        top.set(xlim=(-1, 1), xlabel="Kendall's tau-b of erasure and deletion")
        top.set_ylabel("Share of texts")
        defined = ~np.isnan(rows["hidden_token_attribution"])
        names = ("items", "hidden_token_attribution", "chance")
        items, share, chance = (rows[name][defined] for name in names)
        if len(items):
            cuts = np.unique(np.quantile(items, np.linspace(0, 1, _BINS + 1), method="lower"))
            place = np.searchsorted(cuts, items, side="right")
            members = [place == number for number in np.unique(place)]
            lengths = [items[part].mean() for part in members]
            quartiles = np.array([np.quantile(share[part], [0.25, 0.5, 0.75]) for part in members])
            color = PALETTE[0]
            bottom.fill_between(lengths, quartiles[:, 0], quartiles[:, 2], color=color, alpha=0.22)
            for values, line, ink, name in (
                (share, "o-", color, "attribution to the own token"),
                (chance, "--", MUTED, "all tokens alike"),
            ):
                means = [values[part].mean() for part in members]
                bottom.plot(lengths, means, line, color=ink, label=name)
        bottom.set(ylim=(0, 1.05), xlabel="Items of the text", ylabel="Share on the own token")
        bottom.grid(axis="y")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Means over all rows and by predicted class."""
    names = ("tau_erasure_deletion", "hidden_token_attribution", "own_token_largest", "chance")
    formats = [estimate, estimate, percent, estimate]
    lines = []
    for label in [None, *np.unique(rows["prediction"]).tolist()]:
        members = rows["prediction"] == label if label is not None else np.ones_like(rows["index"])
        columns = [np.where(members, rows[name], np.nan) for name in names]
        lines.append([class_name(label, classes), *mean_cells(columns, rows, formats)])
    return [("classes", lines, {})]
