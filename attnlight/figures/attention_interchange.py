"""How far predictions go towards others' with their attention, by layer and head."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import draw_heads, draw_layers
from attnlight.figures.style import MUTED, PALETTE, canvas
from attnlight.figures.tables import RecordTable, Rows, by_cluster, estimate, mean_cells, percent
from attnlight.statistics.bootstrap import defined_mean


def draw(rows: Rows, classes: Sequence[str] | None = None, **_: object) -> Figure | None:
    """Layers beside all of them with the other's attention and with uniform one; below, heads.

    None where no prediction is far enough from another.
    """
    if np.isnan(rows["covered_all"]).all():
        return None
    heads = "covered_head_by_head" in rows
    every, equal = (float(defined_mean(rows[f"covered_all{x}"])) for x in ("", "_uniform"))
    with canvas(5.2 if heads else 2.6) as figure:
        parts = figure.subfigures(1 + heads, 1, squeeze=False)[:, 0]
        axes = parts[0].subplots()
        lines = {"one layer": (PALETTE[0], "covered_layer_by_layer")}
        draw_layers(axes, rows, lines if "covered_layer_by_layer" in rows else {}, every)
        axes.axhline(equal, color=MUTED, linestyle="dotted", label="all layers, uniform")
        ends = [axes.dataLim.y0, axes.dataLim.y1, every, equal, 0.0]
        axes.set(
            ylabel="Distance covered", ylim=(1.05 * np.nanmin(ends), 1.05 * np.nanmax(ends) + 0.01)
        )
        for below in parts[1:]:
            columns = {"one head": ("covered_head_by_head", "covered_layer_by_layer")}
            draw_heads(below, [below.subplots()], rows, columns, "Distance covered")
    return figure


def tables(
    rows: Rows, classes: Sequence[str] | None = None, least: float | None = None
) -> list[RecordTable]:
    """Share covered and turns with all layers, and the mean and the strongest of layers and heads."""
    rows = by_cluster(rows, "pair")
    pairs = {"all layers": "all", "all layers, uniform attention": "all_uniform"}
    lines = {
        words: [rows[f"{x}_{part}"] for x in ("covered", "turns")] for words, part in pairs.items()
    }
    for part in ("layer", "head"):
        if (single := rows.get(f"covered_{part}_by_{part}")) is None:
            continue
        lines[f"one {part}, mean"] = [rows[f"covered_{part}"], rows[f"turns_{part}"]]
        most = int(np.nan_to_num(defined_mean(single.T), nan=-np.inf).argmax())
        heads = single.shape[1] // rows["covered_layer_by_layer"].shape[1]
        place = f"head {most % heads + 1} of " * (part == "head") + f"layer {most // heads + 1}"
        strongest = [rows[f"{x}_{part}_by_{part}"][:, most] for x in ("covered", "turns")]
        lines[f"one {part}, most: {place}"] = strongest
    cells = [[words, *mean_cells(x, rows, [estimate, percent])] for words, x in lines.items()]
    return [("parts", cells, {"least": least})]
