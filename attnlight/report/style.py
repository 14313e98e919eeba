"""How every figure looks: colours that colour-blind readers tell apart, and nothing superfluous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.tables import class_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito (2008), without black and yellow, which do not show on paper and in the dark.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
POOLED = "#8a919a"
# Colours that the page replaces by its own, so that figures follow its light and dark modes.
INK, MUTED, GRID, PAPER = "#1f2329", "#5a646f", "#d9dee4", "#fefefe"
COLUMN_WIDTH = 5.2  # inches; at 10 pt readable on a phone as on paper

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": PAPER,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.unicode_minus": True,
    "figure.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "savefig.facecolor": PAPER,
    "svg.hashsalt": "attnlight",
    "text.parse_math": False,  # a class may be called $5-$10
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
}


@contextmanager
def styled(**settings: Any) -> Iterator[None]:  # noqa: ANN401
    """Matplotlib's settings for figures of this package, whatever the reader's own are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC | settings)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, inches wide and high, that no global state knows of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@dataclass(frozen=True)
class Group:
    """Rows that share a colour.

    Attributes:
        name: What the legend calls them.
        color: Their colour.
        members: Which rows, (R,) bool.
    """

    name: str
    color: str
    members: NDArray[np.bool_]


def predicted_groups(prediction: NDArray[np.int64], classes: Sequence[str] | None) -> list[Group]:
    """Rows by predicted class; one group of all where the classes outnumber the colours."""
    found = np.unique(prediction).tolist()
    if not found or found[-1] >= len(PALETTE):
        return [
            Group(f"all {len(found)} predicted classes", POOLED, np.ones(len(prediction), bool))
        ]
    return [
        Group(f"predicted {class_name(c, classes or [])}", PALETTE[c], prediction == c)
        for c in found
    ]


def legend_above(figure: Figure, groups: Sequence[Group]) -> None:
    """Name the groups above the axes, as many to a line as fit."""
    from matplotlib.patches import Patch

    names = [g.name if len(g.name) <= 36 else f"{g.name[:35]}…" for g in groups]
    # Some 15 characters to the inch at 9 pt; a patch and its space are as wide as five.
    fitting = int(15 * figure.get_figwidth()) // (max(map(len, names)) + 5)
    handles = [
        Patch(facecolor=group.color, edgecolor=INK, linewidth=0.6, label=name)
        for group, name in zip(groups, names, strict=True)
    ]
    columns = min(max(1, fitting), 3, len(groups))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.2)
