"""Figure: taggers whose attention is given, by whose it is and what else they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.study.estimates import F1, Runs
from attnlight.report.study.groups import uniforms
from attnlight.report.study.marks import SEEDS, UNIFORM
from attnlight.report.study.sentences import capital
from attnlight.report.style import COLUMN_WIDTH, INK, PALETTE, new_figure, styled
from attnlight.report.tagging.along import DASHED, Level
from attnlight.report.tagging.axes import Name
from attnlight.report.tagging.estimates import TaggingEstimates
from attnlight.report.tagging.groups import probes, reading
from attnlight.report.tagging.reading import TaggingStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "{f1} on the test split of taggers trained anew with their attention given, by whose it is and "
    "by what else they read: small marks for the seeds, a large one for the mean with its 95 % "
    "interval over seeds and sentences. The bands are models without a guide: the base with its "
    "other seeds, and uniform attention. A guide says something of the words where it beats the "
    "base's attention shuffled within each sentence. After Yang (2020), whose released probe "
    "ignores the attention it is given."
)
_COLOR = PALETTE[0]
_GUIDES = {"base": "base's", "shuffled": "base's, shuffled", "adversary": "adversary's"}
_GUIDES |= {"other": "other seed's"}


def draw_probes(study: TaggingStudy, estimates: TaggingEstimates) -> Figure | None:
    """F1 of each guide, a panel for each context; None where no probe is finished."""
    found = {context: _finished(by_guide) for context, by_guide in probes(study).items()}
    found = {context: by_guide for context, by_guide in found.items() if by_guide}
    if not found:
        return None
    rows = [len(by_guide) for by_guide in found.values()]
    with styled():
        figure = new_figure(COLUMN_WIDTH, 0.27 * sum(rows) + 0.62 * len(rows) + 0.55)
        ratios = [count + 0.6 for count in rows]
        panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=ratios)
        every = list(panels.flat)
        for axes, (context, by_guide) in zip(every, found.items(), strict=True):
            names = _draw_levels(axes, study, estimates)
            _draw_guides(axes, estimates, by_guide)
            axes.set_title(f"Probe {reading(context)}", loc="left", pad=6)
        every[-1].set_xlabel(capital(study.f1))
        _name_levels(figure, names)
    return figure


def _finished(by_guide: Mapping[str, Runs]) -> dict[str, Runs]:
    return {guide: runs for guide, runs in by_guide.items() if runs}


def _draw_levels(axes: Axes, study: TaggingStudy, estimates: TaggingEstimates) -> list[Name]:
    trained = study.architecture(study.bases[0])
    names = []
    for level in (
        Level("trained attention", SEEDS, "s", trained),
        Level("uniform attention", UNIFORM, "^", uniforms(study)),
    ):
        if level.runs:
            at = estimates.of(level.runs, F1)
            axes.axvspan(at.low, at.high, color=level.color, alpha=0.16, lw=0, zorder=1)
            axes.axvline(at.mean, color=level.color, zorder=2, **DASHED)
            names.append(Name(at.mean, level.name, level.color))
    return names


def _draw_guides(axes: Axes, estimates: TaggingEstimates, by_guide: dict[str, Runs]) -> None:
    for row, runs in enumerate(by_guide.values()):
        values, found = estimates.per_seed(runs, F1), estimates.of(runs, F1)
        below = np.full(len(values), row + 0.24)
        axes.plot(values, below, "o", ms=3, color=INK, alpha=0.5, mew=0, zorder=5)
        axes.plot([found.low, found.high], [row, row], "-", color=_COLOR, lw=1.8, zorder=4)
        axes.plot(found.mean, row, "o", ms=5.5, color=_COLOR, mec="white", mew=0.8, zorder=6)
    axes.set_yticks(range(len(by_guide)), [_GUIDES.get(name, name) for name in by_guide])
    axes.set_ylim(len(by_guide) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=6)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _name_levels(figure: Figure, names: Sequence[Name]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=name.color, label=name.text, **DASHED) for name in names]
    if handles:
        figure.legend(handles=handles, loc="outside upper left", ncols=2, handlelength=2.4)
