"""Adversaries of one attention term along lambda, as figures draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.estimates import Runs
from attnlight.report.study.groups import uniforms
from attnlight.report.study.marks import CONTROL, OTHER_TERM, SEEDS, TERMS, UNIFORM
from attnlight.report.study.plan import StudyRun
from attnlight.report.style import PAPER, POOLED
from attnlight.report.tagging.axes import LambdaAxis, Name
from attnlight.report.tagging.collapse import Collapse
from attnlight.report.tagging.estimates import TaggingEstimates
from attnlight.report.tagging.groups import path
from attnlight.report.tagging.reading import TaggingStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
DASHED: dict[str, Any] = {"lw": 1.1, "ls": (0, (4, 2))}
UNIFORM_LEVEL, SEEDS_LEVEL, CONTROL_LEVEL = "uniform", "other seeds", "λ = 0"


class Level(NamedTuple):
    """A group that does not depend on lambda, drawn as a band.

    Attributes:
        name: What is written beside it.
        color: Its colour.
        marker: Its mark where it is a point.
        runs: Its finished runs.
    """

    name: str
    color: str
    marker: str
    runs: Runs


class Along:
    """The adversaries of one base and attention term from lambda 0 upwards.

    Args:
        study: The study.
        estimates: Its estimates.
        base: The base.
        term: A term that has finished adversaries of the base at a lambda above 0.
        collapse: Which of these collapsed.
    """

    def __init__(
        self,
        study: TaggingStudy,
        estimates: TaggingEstimates,
        base: StudyRun,
        term: str,
        collapse: Collapse,
    ) -> None:
        self.study, self.estimates = study, estimates
        self.base, self.term, self.collapse = base, term, collapse
        self.cells = path(study, base, term)
        self.scale = LambdaAxis([cell.lam for cell in self.cells])
        self.color = color_of(term)

    @property
    def runs(self) -> list[StudyRun]:
        """All runs, with those of lambda 0."""
        return [run for cell in self.cells for run in cell.runs]

    def means(self, measure: str) -> Floats:
        """Place of each lambda and the mean over its runs that did not collapse, (L, 2)."""
        return np.array(
            [
                (self.scale.place(cell.lam), self.estimates.of(self.kept(cell.runs), measure).mean)
                for cell in self.cells
            ]
        )

    def kept(self, runs: Runs) -> list[StudyRun]:
        """Those of some runs that did not collapse."""
        return [run for run in runs if run.name not in self.collapse.names]

    def draw(self, axes: Axes, measure: str) -> None:
        """A mark for each run, crosses for collapsed ones, a line through the means of the others.

        The line is broken where all runs of a lambda collapsed.
        """
        for cell in self.cells:
            kept, fallen = self.kept(cell.runs), self.collapse.of(cell.runs)
            place = self.scale.place(cell.lam)
            draw_runs(axes, place, self.estimates.per_seed(kept, measure), self.color)
            draw_collapsed(axes, place, self.estimates.per_seed(fallen, measure), self.color)
        style: dict[str, Any] = {"ms": 5, "mec": "white", "mew": 0.8, "lw": 1.4, "zorder": 6}
        axes.plot(*self.means(measure).T, "o-", color=self.color, **style)

    def draw_thin(self, axes: Axes, measure: str) -> None:
        """The same means as a grey line alone."""
        axes.plot(*self.means(measure).T, "-", color=POOLED, alpha=0.5, lw=1.1, zorder=3)


def levels(study: TaggingStudy, base: StudyRun) -> list[Level]:
    """Uniform attention, other seeds and the control of a base, those that are finished."""
    uniform = uniforms(study) if base == study.bases[0] else []
    found = [
        Level(UNIFORM_LEVEL, UNIFORM, "^", uniform),
        Level(SEEDS_LEVEL, SEEDS, "s", study.finished("seed", base=base.name)),
        Level(CONTROL_LEVEL, CONTROL, "D", study.controls(base)),
    ]
    return [level for level in found if level.runs]


def draw_levels(
    axes: Axes, estimates: TaggingEstimates, every: Sequence[Level], measure: str
) -> list[Name]:
    """The mean of each level as a line within its interval, and the names of those defined."""
    names = []
    for level in every:
        found = estimates.of(level.runs, measure)
        if np.isnan(found.mean):
            continue
        axes.axhspan(found.low, found.high, color=level.color, alpha=0.16, lw=0, zorder=1)
        axes.axhline(found.mean, color=level.color, zorder=2, **DASHED)
        names.append(Name(found.mean, level.name, level.color))
    return names


def draw_runs(axes: Axes, x: Floats | float, y: Floats, color: str) -> None:
    """Small marks."""
    axes.plot(np.broadcast_to(x, y.shape), y, "o", ms=3, color=color, alpha=0.55, mew=0, zorder=5)


def draw_collapsed(axes: Axes, x: Floats | float, y: Floats, color: str) -> None:
    """Crosses."""
    axes.plot(np.broadcast_to(x, y.shape), y, ls="", zorder=7, **crossed(color))


def crossed(color: str) -> dict[str, Any]:
    """How a run that collapsed looks."""
    return {"marker": "X", "ms": 5.5, "mfc": PAPER, "mec": color, "mew": 1.1}


def legend_of_runs(figure: Figure, along: Along, seeds: bool = False) -> None:
    """What the marks along lambda are, above the axes.

    Args:
        figure: The figure.
        along: What is drawn.
        seeds: Also what the line of other seeds is, where no name stands beside it.
    """
    from matplotlib.lines import Line2D

    known: dict[str, Any] = {"marker": "o", "color": along.color}
    handles = [
        Line2D([], [], ls="", ms=3, alpha=0.55, mew=0, label="a run", **known),
        Line2D([], [], ms=5, mec="white", label="mean over seeds", **known),
    ]
    if along.collapse.of(along.runs):
        handles.append(Line2D([], [], ls="", label="collapsed run", **crossed(along.color)))
    if seeds:
        handles.append(Line2D([], [], label=SEEDS_LEVEL, color=SEEDS, **DASHED))
    close = {"handlelength": 1.6, "columnspacing": 1.4, "handletextpad": 0.5}
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), **close)


def color_of(term: str) -> str:
    """The colour of an attention term."""
    return TERMS.get(term, OTHER_TERM)
