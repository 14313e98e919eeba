"""Attention on special, first and punctuation tokens by layer and head."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import draw_heads, draw_layers
from attnlight.figures.style import PALETTE, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells

_SINKS = {"special": "special tokens", "first": "first token", "punctuation": "punctuation"}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Heat maps of the attention on each sink, and below it by layer; it has no classes."""
    sinks = {sink: words for sink, words in _SINKS.items() if f"mass_{sink}" in rows}
    with canvas(5.2) as figure:
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.4, 1))[:, 0]
        panels = upper.subplots(1, len(sinks), squeeze=False)[0]
        columns = {w: (f"mass_{s}_by_head", f"mass_{s}_by_layer") for s, w in sinks.items()}
        draw_heads(upper, panels, rows, columns, "Attention")
        axes, colors = lower.subplots(), dict(zip(_SINKS, PALETTE, strict=False))
        lines = {words: (colors[sink], f"mass_{sink}_by_layer") for sink, words in sinks.items()}
        draw_layers(axes, rows, lines)
        axes.set(ylabel="Attention, mean of heads", ylim=(0, 1.05))
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Attention on each sink, and tests over all items and over all but a sink's."""
    nothing = np.full(len(rows["index"]), np.nan)
    lines = []
    for sink, words in {"": "all items", **_SINKS}.items():
        if sink and f"mass_{sink}" not in rows:
            continue
        end = f"_without_{sink}" if sink else ""
        names = (f"mass_{sink}", f"erased_{sink}", f"tau{end}", f"erased_top{end}")
        columns = [rows.get(name, nothing) for name in names]
        cells = mean_cells(columns, rows, [estimate] * len(columns))
        defined = int((~np.isnan(columns[2])).sum())
        lines.append([f"without {words}" if sink else words, *cells[:-1], f"{defined:,}"])
    return [("sinks", lines, {})]
