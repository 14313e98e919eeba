"""Change of the prediction by the layer and head whose attention is ablated."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import draw_heads, draw_layers
from attnlight.figures.style import PALETTE, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent
from attnlight.statistics.bootstrap import defined_mean

_ABLATIONS = ("uniform", "shuffled", "off")
_MEASURES = ("tvd", "flip_rate")


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Heat maps of single heads, and below them whole layers and all of them; without classes."""
    names = [name for name in _ABLATIONS if f"tvd_all_{name}" in rows]
    with canvas(5.2) as figure:
        panels = figure.subplots(2, len(names), squeeze=False, height_ratios=(1.4, 1))
        columns = {n: (f"tvd_head_{n}_by_head", f"tvd_layer_{n}_by_layer") for n in names}
        draw_heads(figure, panels[0], rows, columns, "TVD, one head")
        for axes, name in zip(panels[1], names, strict=True):
            every = float(defined_mean(rows[f"tvd_all_{name}"]))
            lines = {"one layer": (PALETTE[0], f"tvd_layer_{name}_by_layer")}
            draw_layers(axes, rows, lines, every)
        highest = max(axes.get_ylim()[1] for axes in panels[1])
        for axes in panels[1]:
            axes.set_ylim(0, highest)
        panels[1, 0].set_ylabel("TVD, all heads")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Change and flips for single heads, the strongest of them, single layers and all layers."""
    lines = []
    for name in (name for name in _ABLATIONS if f"tvd_all_{name}" in rows):
        of_heads = rows[f"tvd_head_{name}_by_head"]
        heads = of_heads.shape[1] // rows[f"tvd_layer_{name}_by_layer"].shape[1]
        strongest = int(np.nan_to_num(defined_mean(of_heads.T)).argmax())
        place = f"head {strongest % heads + 1} of layer {strongest // heads + 1}"
        most = [rows[f"{x}_head_{name}_by_head"][:, strongest] for x in _MEASURES]
        kinds = ("head", "last", "all")
        mean, last, every = ([rows[f"{x}_{kind}_{name}"] for x in _MEASURES] for kind in kinds)
        parts = {"one head, mean": mean, f"one head, most: {place}": most}
        parts |= {"the last layer": last, "all layers": every}
        for part, pair in parts.items():
            lines.append([f"{name}: {part}", *mean_cells(pair, rows, [estimate, percent])])
    return [("parts", lines, {})]
