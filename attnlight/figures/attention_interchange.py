"""How far predictions go towards others' with their attention, by layer and head."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import column_means, draw_heads, draw_layers
from attnlight.figures.style import PALETTE, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent

_WORDS = {"": "the other's attention", "_uniform": "uniform attention"}


def draw(rows: Rows, classes: Sequence[str] | None = None, least: float | None = None) -> Figure:
    """Layers beside all of them, with the other's and with uniform attention; below them heads."""
    by_head, layered = "covered_head_by_head" in rows, "covered_layer_by_layer" in rows
    with canvas(5.2 if by_head else 2.6) as figure:
        upper, *lower = figure.subfigures(1 + by_head, 1, squeeze=False)[:, 0]
        panels = upper.subplots(1, len(_WORDS), sharey=True)
        for axes, (end, words) in zip(panels, _WORDS.items(), strict=True):
            every = float(column_means(rows[f"covered_all{end}"][:, None])[0])
            column = f"covered_layer{end}_by_layer"
            draw_layers(axes, rows, {words: (PALETTE[0], column)} if layered else {}, every)
            axes.set_title(words, loc="left")
        panels[0].set_ylabel("Distance covered")
        spans = np.array([axes.dataLim.intervaly for axes in panels])
        panels[0].set_ylim(min(0.0, 1.05 * spans.min()), 1.05 * max(spans.max(), 0.1))
        for below in lower:
            columns = {"one head": ("covered_head_by_head", "covered_layer_by_layer")}
            draw_heads(below, [below.subplots()], rows, columns, "Distance covered")
    return figure


def tables(
    rows: Rows, classes: Sequence[str] | None = None, least: float | None = None
) -> list[RecordTable]:
    """Share covered and turns with all layers, the mean and the strongest of single ones, and heads."""
    order = rows["pair"].argsort(kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    rows |= {"index": rows["pair"].astype(np.int64)}
    lines: dict[str, tuple[str, int | None]] = {}
    for end, words in _WORDS.items():
        lines[f"{words}: all layers"] = (f"all{end}", None)
        for part in ("layer", "head"):
            single = rows.get(f"covered_{part}{end}_by_{part}")
            if single is None:
                continue
            most = int(np.nan_to_num(column_means(single), nan=-np.inf).argmax())
            layers = rows["covered_layer_by_layer"].shape[1]
            heads = single.shape[1] // layers
            place = f"head {most % heads + 1} of layer {most // heads + 1}"
            lines[f"{words}: one {part}, mean"] = (f"{part}{end}", None)
            place = place if part == "head" else f"layer {most + 1}"
            lines[f"{words}: one {part}, most: {place}"] = (f"{part}{end}_by_{part}", most)
    cells = []
    for words, (part, column) in lines.items():
        pair = [rows[f"{measure}_{part}"] for measure in ("covered", "turns")]
        pair = [values if column is None else values[:, column] for values in pair]
        cells.append([words, *mean_cells(pair, rows, [estimate, percent])])
    return [("parts", cells, {"least": least})]
