"""Attention of heads by role, and accuracy by the heads that are left."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.layers import column_means, draw_heads
from attnlight.figures.style import GRID, INK, MUTED, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.statistics.bootstrap import bootstrap_means

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
_ORDERS = {"pruned": (INK, "solid", "least important first"), "random": (MUTED, "dashed", "random")}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Heat maps of the attention in each role and, where heads were pruned, accuracy below them."""
    roles = [role for role in _ROLES if f"mass_{role}_by_head" in rows]
    percents = _percents(rows)
    lines = -(-len(roles) // 4)
    with canvas(1.6 * lines + (2.2 if percents else 0)) as figure:
        ratios = (1.6 * lines, 2.2)[: 1 + bool(percents)]
        parts = figure.subfigures(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
        panels = parts[0].subplots(lines, 4, squeeze=False).flatten()
        names = {_ROLES[role]: (f"mass_{role}_by_head", f"mass_{role}_by_layer") for role in roles}
        draw_heads(parts[0], panels[: len(roles)], rows, names, "Attention")
        for axes in panels[len(roles) :]:
            axes.remove()
        for below in parts[1:]:
            axes, left = below.subplots(), [100 - percent for percent in percents]
            for order, (color, style, words) in _ORDERS.items():
                columns = np.stack([rows[f"correct_{order}_{percent}"] for percent in percents], 1)
                means = bootstrap_means(columns.astype(np.float64), rows["index"])
                axes.fill_between(left, [x.low for x in means], [x.high for x in means], color=GRID)
                axes.plot(left, [x.mean for x in means], color=color, linestyle=style, label=words)
            axes.set(xlabel="Heads left (%)", ylabel="Accuracy", xlim=(103, -3))
            axes.legend()
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The head of most attention in each role, the role of each head, and accuracy by heads left."""
    roles = [role for role in _ROLES if f"mass_{role}_by_head" in rows]
    count = rows[f"mass_{roles[0]}_by_layer"].shape[1]
    means = np.stack([column_means(rows[f"mass_{role}_by_head"]) for role in roles])
    heads = means.shape[1] // count
    strongest, known = [], np.nan_to_num(means)
    for role, most in zip(roles, known.argmax(1).tolist(), strict=True):
        columns = [
            rows[f"mass_{role}_by_head"][:, most],
            rows[f"mass_{role}"],
            rows[f"chance_{role}"],
        ]
        layer, head = divmod(most, heads)
        cells = mean_cells(columns, rows, [estimate] * 3)
        strongest.append([_ROLES[role], f"{layer + 1}, {head + 1}", *cells])
    largest = known.argmax(0).reshape(count, heads)
    grid = [
        [
            f"{layer + 1}",
            *(
                f"{_ROLES[roles[role]]} {known[role, layer * heads + head]:.2f}"
                for head, role in enumerate(line)
            ),
        ]
        for layer, line in enumerate(largest.tolist())
    ]
    found: list[RecordTable] = [("roles", strongest, {})]
    found.append(
        ("heads", grid, {"head": ["layer", *(f"head {head + 1}" for head in range(heads))]})
    )
    accuracy = [
        [
            f"{100 - percent}",
            *mean_cells([rows[f"correct_{order}_{percent}"] for order in _ORDERS], rows),
        ]
        for percent in _percents(rows)
    ]
    return [*found, *([("left", accuracy, {})] if accuracy else [])]


def _percents(rows: Rows) -> list[int]:
    """Shares of heads that were pruned, in per cent, ascending."""
    start = "correct_pruned_"
    return sorted(int(name.removeprefix(start)) for name in rows if name.startswith(start))
