"""Accuracy by the share of the items that is erased at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import GRID, INK, canvas
from attnlight.figures.tables import RecordTable, Rows, mean_cells, percent
from attnlight.statistics.bootstrap import bootstrap_means


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Mean of each share with its interval; it has no classes."""
    shares = _shares(rows)
    columns = np.stack([rows[name] for name in shares.values()], axis=1).astype(np.float64)
    means = bootstrap_means(columns, rows["index"])
    with canvas(2.6) as figure:
        axes = figure.subplots()
        low, high = ([getattr(mean, end) for mean in means] for end in ("low", "high"))
        axes.fill_between(list(shares), low, high, color=GRID)
        axes.plot(list(shares), [mean.mean for mean in means], "o-", color=INK, markersize=4)
        axes.set(xlabel="Erased (% of the items)", ylabel="Accuracy", xlim=(-3, 103))
        axes.grid(axis="y")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Accuracy at each share."""
    lines = [
        [str(share), *mean_cells([rows[name]], rows, [percent])]
        for share, name in _shares(rows).items()
    ]
    return [("accuracy", lines, {})]


def _shares(rows: Rows) -> dict[int, str]:
    """The column of each share in per cent, ascending."""
    names = (name for name in rows if name.startswith("correct"))
    return dict(sorted((int(name.partition("_")[2] or 0), name) for name in names))
