"""Axes of the figures of a tagger's study: one with a place for lambda 0, names beside lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnlight.report.style import INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCH = 72.0  # points
_GAP = 0.16  # between lambda 0 and the least above it, in shares of the way from there to the last
_MOST_NAMED = 8  # lambdas; of more the powers of ten are named
_LETTER = 6.4  # points that a letter of a tick's name takes, with some room
_LINE = 11.0  # points from one line of names to the next


class Name(NamedTuple):
    """What is written beside a line.

    Attributes:
        height: Where the line is.
        text: Its name.
        color: Its colour.
    """

    height: float
    text: str
    color: str


class LambdaAxis:
    """Lambdas on a logarithmic axis, with a place for 0 to the left of a break.

    Args:
        lambdas: The lambdas, of which one at least is above 0.
    """

    def __init__(self, lambdas: Sequence[float]) -> None:
        self.lambdas = sorted(lam for lam in set(lambdas) if lam > 0)
        low, high = np.log10(self.lambdas[0]), np.log10(self.lambdas[-1])
        gap = _GAP * max(high - low, 1.0)
        self._zero = float(low - gap)
        self.limits = self._zero - 0.4 * gap, float(high) + 0.4 * gap
        self._break = float(low - 0.5 * gap)

    def place(self, lam: float) -> float:
        """Where a lambda stands."""
        return float(np.log10(lam)) if lam > 0 else self._zero

    def dress(self, axes: Axes, width: float | None) -> None:
        """Set limits and ticks, and mark the break.

        Args:
            axes: The axes.
            width: How wide they are, in points, so that no two names overlap; None: name nothing.
        """
        axes.set_xlim(*self.limits)
        major, minor = self.lambdas, list[float]()
        if len(self.lambdas) > _MOST_NAMED:
            major, minor = _decades(self.lambdas)
        ticks = [0.0, *major]
        names = self._names(ticks, width) if width else [""] * len(ticks)
        axes.set_xticks([self.place(lam) for lam in ticks], names)
        axes.set_xticks([self.place(lam) for lam in minor], minor=True)
        _mark_break(axes, self._break, self.limits)

    def _names(self, ticks: Sequence[float], width: float) -> list[str]:
        """Names of ticks, the ends' first, empty where one would overlap another."""
        scale = width / (self.limits[1] - self.limits[0])
        names = [f"{lam:g}" for lam in ticks]
        middles = [scale * self.place(lam) for lam in ticks]
        kept: list[int] = []
        for k in (0, len(ticks) - 1, *range(1, len(ticks) - 1)):
            halves = [_LETTER * (len(names[k]) + len(names[other])) / 2 for other in kept]
            clear = [
                abs(middles[k] - middles[other]) >= half
                for other, half in zip(kept, halves, strict=True)
            ]
            if all(clear):
                kept.append(k)
        return [name if k in kept else "" for k, name in enumerate(names)]


def _decades(lambdas: Sequence[float]) -> tuple[list[float], list[float]]:
    """Powers of ten within the lambdas, and two to nine times them."""
    whole = range(int(np.floor(np.log10(lambdas[0]))), int(np.ceil(np.log10(lambdas[-1]))) + 1)
    steps = [[k * 10.0**power for k in range(1, 10)] for power in whole]
    # 10 to the -3 is 0.001 but for rounding.
    low, high = lambdas[0] * (1 - 1e-9), lambdas[-1] * (1 + 1e-9)
    kept = [[lam for lam in part if low <= lam <= high] for part in steps]
    major = [lam for part in kept for lam in part if np.isclose(np.log10(lam) % 1, (0, 1)).any()]
    return major, [lam for part in kept for lam in part if lam not in major]


def _mark_break(axes: Axes, place: float, limits: tuple[float, float]) -> None:
    """Two strokes across the axis."""
    wide = 0.006 * (limits[1] - limits[0])
    known: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    known |= {"zorder": 12, "solid_capstyle": "butt"}
    axes.plot([place - 1.6 * wide, place + 1.6 * wide], [0, 0], color=PAPER, lw=3, **known)
    for side in (-1.6, 1.6):
        middle = place + side * wide
        axes.plot([middle - wide, middle + wide], [-0.022, 0.022], color=MUTED, lw=0.9, **known)


def name_at_right(axes: Axes, names: Sequence[Name], height: float) -> None:
    """Write names to the right of the axes at the height of what they name, apart from each other.

    Args:
        axes: The axes, whose limits are set.
        names: What to write.
        height: Of the axes, in points.
    """
    low, high = axes.get_ylim()
    order = sorted(names)
    wanted = [(name.height - low) / (high - low) * height for name in order]
    for name, at, own in zip(order, spread(wanted), wanted, strict=True):
        axes.annotate(
            name.text,
            (1, name.height),
            (5, at - own),
            ("axes fraction", "data"),
            "offset points",
            ha="left",
            va="center",
            fontsize=9,
            color=_legible(name.color),
            annotation_clip=False,
        )


def _legible(color: str) -> tuple[float, ...] | str:
    """A colour dark enough for small letters, on paper as on a dark page."""
    from matplotlib.colors import to_rgb

    if color == INK:  # which the page replaces by its own
        return color
    mixed = 0.7 * np.array(to_rgb(color)) + 0.3 * np.array(to_rgb(INK))
    return tuple(mixed.tolist())


def spread(wanted: Sequence[float], apart: float = _LINE) -> list[float]:
    """Ascending places moved as little as needed to stand apart, groups about their middle."""
    blocks: list[list[float]] = []
    for place in wanted:
        blocks.append([place])
        while len(blocks) > 1 and _end(blocks[-2], apart) > _start(blocks[-1], apart):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    return [_start(block, apart) + apart * (k + 0.5) for block in blocks for k in range(len(block))]


def _start(block: Sequence[float], apart: float) -> float:
    return float(np.mean(block)) - apart * len(block) / 2


def _end(block: Sequence[float], apart: float) -> float:
    return _start(block, apart) + apart * len(block)
