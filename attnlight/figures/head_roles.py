"""Attention of heads by role, and accuracy by the heads that are left."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import draw_heads
from attnlight.figures.style import GRID, INK, MUTED, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.statistics.bootstrap import bootstrap_means, defined_mean

_ROLES = {
    "previous": "token before",
    "next": "token after",
    "same": "itself",
    "first": "first token",
    "separator": "separator",
    "punctuation": "punctuation",
    "duplicate": "duplicate",
    "induction": "induction",
    "repeated_duplicate": "duplicate, repeats",
    "repeated_induction": "induction, repeats",
    "same_chunk": "own chunk",
    "same_tag": "own tag",
}
_ORDERS = {"pruned": (INK, "solid", "least first"), "random": (MUTED, "dashed", "random order")}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Heat maps of the attention in each role and, where heads were pruned, accuracy below them."""
    columns = {
        words: (f"mass_{role}_by_head", f"mass_{role}_by_layer")
        for role, words in _ROLES.items()
        if f"mass_{role}_by_head" in rows
    }
    start = "correct_pruned_"
    percents = sorted(int(name.removeprefix(start)) for name in rows if name.startswith(start))
    lines = -(-len(columns) // 3)
    heights = [1.4 * lines, *([2.2] if percents else [])]
    with canvas(sum(heights)) as figure:
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        panels = parts[0].subplots(lines, 3, squeeze=False).flatten()
        draw_heads(parts[0], panels[: len(columns)], rows, columns, "Attention")
        for empty in panels[len(columns) :]:
            empty.remove()
        for below in parts[1:]:
            axes, left = below.subplots(), [100 - percent for percent in percents]
            for order, (color, style, words) in _ORDERS.items():
                values = np.stack([rows[f"correct_{order}_{percent}"] for percent in percents], 1)
                means = bootstrap_means(values.astype(np.float64), rows["index"])
                axes.fill_between(left, [x.low for x in means], [x.high for x in means], color=GRID)
                axes.plot(left, [x.mean for x in means], color=color, linestyle=style, label=words)
            axes.set(xlabel="Heads left (%)", ylabel="Accuracy", xlim=(103, -3))
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The head of most attention in each role, and the role of most attention of each head."""
    words = {role: words for role, words in _ROLES.items() if f"mass_{role}_by_head" in rows}
    means = np.nan_to_num([defined_mean(rows[f"mass_{role}_by_head"].T) for role in words])
    heads = means.shape[1] // rows["mass_previous_by_layer"].shape[1]
    strongest = []
    for (role, name), most in zip(words.items(), means.argmax(1).tolist(), strict=True):
        others = rows[f"mass_{role}"], rows[f"chance_{role}"]
        columns = [rows[f"mass_{role}_by_head"][:, most], *others]
        place = f"{most // heads + 1}, {most % heads + 1}"
        strongest.append([name, place, *mean_cells(columns, rows, [estimate] * 3)])
    names = np.array([*words.values()])[means.argmax(0)]
    cells = [f"{name} {mean:.2f}" for name, mean in zip(names, means.max(0), strict=True)]
    grid = [
        [f"{layer // heads + 1}", *cells[layer : layer + heads]]
        for layer in range(0, len(cells), heads)
    ]
    head = ["layer", *(f"head {number + 1}" for number in range(heads))]
    return [("roles", strongest, {}), ("heads", grid, {"head": head})]
