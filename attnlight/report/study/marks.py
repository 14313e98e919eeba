"""How the groups of a study look in every figure, and an axis of lambdas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import CONTROL, SEEDS, uniforms
from attnlight.report.style import INK, PALETTE, PAPER

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs, Study

TERMS = {"kl": PALETTE[0], "js": PALETTE[5], "tvd": PALETTE[3], "compat": PALETTE[5]}
OTHER_TERM = PALETTE[4]
UNIFORM = "uniform"
COLORS = {CONTROL: INK, SEEDS: PALETTE[2], UNIFORM: PALETTE[1]}
MARKERS = {CONTROL: "D", SEEDS: "s", UNIFORM: "^"}
POINT: dict[str, Any] = {"marker": "o", "ms": 3, "mew": 0, "ls": "", "zorder": 5}
MEAN: dict[str, Any] = {"marker": "o", "ms": 5, "mec": "white", "mew": 0.8, "lw": 1.4, "zorder": 6}
DASHED: dict[str, Any] = {"lw": 1.1, "ls": (0, (4, 2)), "zorder": 2}
LAMBDA = "λ, the weight of the divergence in the adversary's loss"
_GAP = 0.16  # between lambda 0 and the least above it, in shares of the way from there to the last
_MOST_NAMED = 3  # powers of ten between the least lambda and the largest


class Level(NamedTuple):
    """A group that does not depend on lambda, with its finished runs."""

    name: str
    runs: Runs

    @property
    def color(self) -> str:
        """Its colour."""
        return COLORS[self.name]


class Drawing(NamedTuple):
    """A figure of a study.

    Attributes:
        title: Its heading on the page.
        stem: The stem of its files.
        figure: The figure.
        caption: What it shows.
    """

    title: str
    stem: str
    figure: Figure
    caption: str


def levels(study: Study, base: str) -> list[Level]:
    """Uniform attention, other seeds and the control of a base, those that are finished."""
    uniform = [Level(UNIFORM, uniforms(study))] if base == study.bases[0] else []
    seeds = Level(SEEDS, study.finished("seed", base=base))
    return [lv for lv in (*uniform, seeds, Level(CONTROL, study.controls(base))) if len(lv.runs)]


def color_of(term: str) -> str:
    """The colour of an attention term."""
    return TERMS.get(term, OTHER_TERM)


def crossed(color: str) -> dict[str, Any]:
    """How a run that collapsed looks."""
    look = {"marker": "X", "ms": 5.5, "mfc": PAPER, "mec": color, "mew": 1.1, "ls": ""}
    return look | {"zorder": 7, "label": "collapsed run"}


def draw_bands(
    axes: Axes, estimates: Estimates, every: Iterable[Level], measure: str, across: bool = False
) -> None:
    """The mean of each level as a line within its 95 % interval; across: measured on the x axis."""
    for level in every:
        found = estimates.of(level.runs, measure)
        if not np.isnan(found.mean):
            band, line = (axes.axvspan, axes.axvline) if across else (axes.axhspan, axes.axhline)
            band(found.low, found.high, color=level.color, alpha=0.16, lw=0, zorder=1)
            line(found.mean, color=level.color, label=level.name, **DASHED)


def dress(axes: Axes, **grid: Any) -> None:  # noqa: ANN401
    """Lines behind everything, and room above and below."""
    axes.grid(**grid)
    axes.set_axisbelow(True)
    axes.margins(y=0.08)


def legend_above(
    figure: Figure, *every: Axes, columns: int = 3, names: Mapping[str, str] | None = None
) -> None:
    """Name what is labelled on some axes, each label once, above them; names: in other words."""
    named: dict[str, Artist] = {}
    for axes in every:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault((names or {}).get(name, name), handle)
    if named:
        figure.legend(named.values(), named, loc="outside upper left", ncols=columns)


def lambda_axis(axes: Axes, lambdas: Sequence[float], named: bool = True) -> None:
    """Lambdas on a logarithmic axis, with a place for 0 to the left of the least.

    Args:
        axes: The axes.
        lambdas: The lambdas, of which one at least is above 0.
        named: Write them below the axis: the ends, and some powers of ten between them.
    """
    above = [lam for lam in lambdas if lam > 0]
    low, high = min(above), max(above)
    gap = _GAP * max(np.log10(high / low), 1.0)
    axes.set_xscale("symlog", linthresh=low, linscale=gap)
    axes.set_xlim(-0.4 * low, high * 10 ** (0.4 * gap))
    powers = np.arange(np.ceil(np.log10(2 * low)), np.floor(np.log10(high / 2)) + 1)
    between = (10.0 ** powers[:: max(1, -(-len(powers) // _MOST_NAMED))]).tolist()
    ticks = sorted({0.0, low, *between, high})
    axes.set_xticks(ticks, [f"{lam:g}" if named else "" for lam in ticks])
    axes.minorticks_off()
