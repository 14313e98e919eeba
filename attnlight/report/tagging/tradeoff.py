"""Figure: the loss of adversaries against how far their attention is, and the shapes fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.estimates import JS, Runs
from attnlight.report.study.lambdas import term_name
from attnlight.report.study.plan import StudyRun
from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, new_figure, styled
from attnlight.report.tables import number
from attnlight.report.tagging.along import CONTROL_LEVEL, color_of, crossed, levels
from attnlight.report.tagging.bends import Bend, find_bend
from attnlight.report.tagging.collapse import Collapse
from attnlight.report.tagging.estimates import NLL_BASE, NLL_GOLD, TaggingEstimates
from attnlight.report.tagging.groups import adversaries, terms
from attnlight.report.tagging.reading import TaggingStudy
from attnlight.statistics.changepoint import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

CAPTION = (
    "Negative log-likelihood a token of adversaries of {base} against the mean divergence of their "
    "attention from its own, on the test split, a mark for each run: above of the labels that the "
    "base predicts, below of the gold labels. A line, a line with a kink and two lines of one slope "
    "with a jump are fitted to all of them, and those of lambda 0; beside each stands how much more "
    "its BIC is than the least, for which more than 10 is very strong evidence (Kass & Raftery, "
    "1995). Other seeds and uniform attention are means over seeds and are not fitted. After Yang "
    "(2020), whose losses lie on two levels."
)
_NAMES = {NLL_BASE: "NLL of the base's labels", NLL_GOLD: "NLL of gold labels"}
_LINES = {"line": ":", "kink": "-", "jump": (0, (5, 2))}
_HEIGHT = 2.5


def draw_tradeoff(
    study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun, collapse: Collapse
) -> Figure | None:
    """Both losses against JS, with a line, a kink and a jump.

    Returns:
        The figure; None where the base has no adversary at a lambda above 0.
    """
    if not terms(study, base):
        return None
    every = _marks(study, base, collapse)
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * _HEIGHT + 1.0)
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (measure, name) in zip(panels, _NAMES.items(), strict=True):
            _draw_fits(axes, find_bend(study, estimates, base, measure))
            for mark in every:
                mark.draw(axes, estimates, measure)
            axes.set_ylabel(f"{name} (nats)")
            axes.grid()
            axes.set_axisbelow(True)
        panels[-1].set_xlabel("Mean JS from the base's attention (nats)")
        named = {mark.name: mark for mark in every if mark.runs}
        handles = [mark.handle() for mark in named.values()]
        figure.legend(handles=handles, loc="outside upper left", ncols=3, handletextpad=0.2)
    return figure


class _Mark(NamedTuple):
    """Runs that look alike: each a mark, or one for their mean."""

    name: str
    runs: Runs
    style: Mapping[str, Any]
    mean: bool = False

    def draw(self, axes: Axes, estimates: TaggingEstimates, measure: str) -> None:
        points = np.stack([estimates.per_seed(self.runs, m) for m in (JS, measure)])
        if self.mean:
            points = points.mean(axis=1, keepdims=True)
        axes.plot(*points, ls="", zorder=6, **self.style)

    def handle(self) -> Line2D:
        from matplotlib.lines import Line2D

        return Line2D([], [], ls="", label=self.name, **self.style)


def _marks(study: TaggingStudy, base: StudyRun, collapse: Collapse) -> list[_Mark]:
    found, fallen = [], []
    every = adversaries(study, base)
    for term in terms(study, base):
        runs = [run for run in every if run.term == term and run.lam]
        kept = [run for run in runs if run.name not in collapse.names]
        color = color_of(term)
        point = {"marker": "o", "ms": 3.6, "color": color, "mew": 0}
        found.append(_Mark(f"adversary, {term_name(term)}", kept, point))
        fallen.append(_Mark("collapsed run", collapse.of(runs), crossed(color)))
    for level in levels(study, base):
        style = {"marker": level.marker, "color": level.color, "mec": "white", "mew": 0.8}
        if level.name == CONTROL_LEVEL:
            controls = [run for run in every if not run.lam]
            found.append(_Mark(level.name, controls, style | {"ms": 5}))
        else:
            found.append(_Mark(level.name, level.runs, style | {"ms": 7}, mean=True))
    return found + fallen


def _draw_fits(axes: Axes, bend: Bend) -> None:
    if bend.fits is None:
        return
    ends, best = (bend.js.min(), bend.js.max()), bend.fits.preferred
    for fit in bend.fits:
        more = "least BIC" if fit is best else f"BIC +{fit.bic - best.bic:.1f}"
        where = "" if fit.shape == "line" else f" at {number(fit.place)}"
        axes.plot(
            *_curve(fit, *ends),
            ls=_LINES[fit.shape],
            color=INK if fit is best else MUTED,
            lw=1.6 if fit is best else 1.1,
            label=f"{fit.shape}{where}, {more}",
            zorder=4,
        )
    axes.legend(loc="upper left", handlelength=2.6)


def _curve(fit: Fit, low: float, high: float) -> NDArray[np.float64]:
    """Points of a fitted shape, (2, m), parted at a jump."""
    ends = [low, high] if fit.shape == "line" else [low, fit.place, fit.place, fit.place, high]
    x = np.array(ends)
    y = fit.at(x)
    if fit.shape == "jump":
        y[2:4] = np.nan, y[2] + fit.change
    return np.stack([x, y])
