"""How well each attribution method finds edited words, beside chance and position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.style import INK, MUTED, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent
from attnlight.statistics.bootstrap import bootstrap_means

_PANELS = {"auprc": "AUPRC of edited words", "auprc_used": "of used edits", "rank": "Rank"}
_POSITIONS = {"auprc_first": "left to right", "auprc_last": "right to left"}


def turned_pairs(rows: Rows) -> Rows:
    """The rows of pairs in ascending order of their originals, which are the `index`."""
    pairs = np.flatnonzero(~np.isnan(rows["original"]))
    order = pairs[rows["original"][pairs].argsort(kind="stable")]
    chosen = {name: column[order] for name, column in rows.items()}
    return chosen | {"index": chosen["original"].astype(np.int64)}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Means with intervals over originals; None where no prediction turns."""
    rows = turned_pairs(rows)
    if np.isnan(rows["chance_auprc"]).all():
        return None
    methods = {
        label: words
        for label, words in recorded_methods(rows, "auprc").items()
        if f"rank_{label}" in rows
    }
    with canvas(1.3 + 0.3 * len(methods)) as figure:
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure, label) in zip(panels, _PANELS.items(), strict=True):
            values = np.stack([rows[f"{measure}_{name}"] for name in methods], axis=1)
            for place, mean in enumerate(reversed(bootstrap_means(values, rows["index"]))):
                axes.hlines(place, mean.low, mean.high, INK, linewidth=1)
                axes.plot(mean.mean, place, "o", color=INK, ms=5)
            chance = {"auprc": np.nanmean(rows["chance_auprc"]), "rank": 0.5}.get(measure)
            if chance is not None:
                axes.axvline(chance, color=MUTED, ls="dashed", lw=1, label="chance")
            axes.set(xlabel=label, xlim=(-0.03, 1.03), xticks=(0, 0.5, 1))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(axis="x")
            axes.tick_params(axis="y", length=0)
        panels[0].set_yticks(range(len(methods)), list(methods.values())[::-1])
        panels[0].set_ylim(-0.6, len(methods) - 0.4)
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Measures of each method beside chance and position, and of the pairs."""
    rows = turned_pairs(rows)
    chance, attention = rows["chance_auprc"], rows.get("auprc_attention")
    nothing = np.full(len(chance), np.nan)
    attention = nothing if attention is None else attention
    lines = {
        words: [rows[f"{x}_{label}"] for x in ("auprc", "rank", "mass", "auprc_used")]
        for label, words in recorded_methods(rows, "auprc").items()
        if f"rank_{label}" in rows
    }
    half = np.where(np.isnan(chance), np.nan, 0.5)
    lines["chance"] = [chance, half, rows["edit_share"], nothing]
    lines |= {words: [rows[x], nothing, nothing, nothing] for x, words in _POSITIONS.items()}
    methods = [
        [name, *mean_cells([auprc, auprc - chance, auprc - attention, *more], rows, [estimate] * 6)]
        for name, (auprc, *more) in lines.items()
    ]
    names = ("turns", "correct_original", "correct", "edits", "largest_effect", "turning_edits")
    formats = [percent, percent, percent, estimate, estimate, percent, percent]
    pairs = mean_cells([rows[x] for x in (*names, "moved_attention_turns")], rows, formats)
    turned = {"turned": int(np.nansum(rows["turns"])), "pairs": len(chance)}
    return [("methods", methods, turned), ("pairs", [["all pairs", *pairs]], turned)]
