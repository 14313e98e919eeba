"""Accuracy by the share of the items that is erased at random."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import GRID, INK, canvas
from attnlight.figures.tables import Rows
from attnlight.statistics.bootstrap import bootstrap_means


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Mean at each share with its interval; it has no classes."""
    names = [name for name in rows if name.startswith("correct")]
    shares = [int(name.partition("_")[2] or 0) for name in names]
    columns = np.stack([rows[name] for name in names], axis=1).astype(np.float64)
    means = bootstrap_means(columns[:, np.argsort(shares)], rows["index"])
    with canvas(2.6) as figure:
        axes, shares = figure.subplots(), sorted(shares)
        low, high = ([getattr(mean, end) for mean in means] for end in ("low", "high"))
        axes.fill_between(shares, low, high, color=GRID)
        axes.plot(shares, [mean.mean for mean in means], "o-", color=INK, markersize=4)
        axes.set(xlabel="Erased (% of the items)", ylabel="Accuracy", xlim=(-3, 103))
        axes.grid(axis="y")
    return figure
