"""Figures by lambda: what adversaries predict, how far each head goes, how they rank words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.study.estimates import F1, JS, TVD
from attnlight.report.study.sentences import capital
from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, new_figure, styled
from attnlight.report.tables import number
from attnlight.report.tagging.along import (
    SEEDS_LEVEL,
    UNIFORM_LEVEL,
    Along,
    draw_collapsed,
    draw_levels,
    draw_runs,
    legend_of_runs,
    levels,
)
from attnlight.report.tagging.axes import INCH, name_at_right
from attnlight.report.tagging.bends import NO_BEND, Bend
from attnlight.report.tagging.estimates import TAU, head_measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOME_CAPTION = (
    "{f1} of adversaries of {base} ({term}) and mean total variation distance of their predictions "
    "from its own, on the test split, by lambda. The line goes through the means over the runs that "
    "did not collapse, and is broken where all did; bands are 95 % intervals, over seeds and sentences, of uniform attention, of "
    "other seeds and of lambda 0, imitation with no word on attention."
)
HEADS_CAPTION = (
    "How far each head's attention is from that of {base} by lambda ({term}); each head of the model "
    "is matched with one of the base's. Grey lines are the other heads. The band is the 95 % "
    "interval of other seeds of the base, for the same head."
)
RANKING_CAPTION = (
    "Kendall's tau-b between the attention of adversaries and that of {base} ({term}), a mean over "
    "tokens and heads: by lambda above, against the divergence of attention below{bend}. Bands are "
    "95 % intervals of other seeds and of lambda 0; uniform attention ranks nothing."
)
_BEND = (
    "; the vertical line is where the loss against the base's labels bends ({shape}), grey strokes "
    "are the means on either side of it"
)
_HEIGHT = 2.2  # inches of a panel
_WIDE, _WHOLE = 3.6 * INCH, 4.4 * INCH  # of a panel with names at its right and without
_LAMBDA = "λ, the weight of the divergence in the adversary's loss"


def draw_outcome(along: Along) -> Figure:
    """F1 and TVD against lambda."""
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * _HEIGHT + 1.0)
        every = figure.subplots(2, 1)
        for axes, measure in zip(every, (F1, TVD), strict=True):
            names = draw_levels(axes, along.estimates, levels(along.study, along.base), measure)
            along.draw(axes, measure)
            _dress(axes)
            along.scale.dress(axes, _WIDE if axes is every[-1] else None)
            name_at_right(axes, names, _HEIGHT * INCH)
        every[-1].set_xlabel(_LAMBDA)
        every[0].set_ylabel(capital(along.study.f1))
        every[1].set_ylabel("TVD from the base")
        legend_of_runs(figure, along)
    return figure


def draw_heads(along: Along) -> Figure | None:
    """JS of each head against lambda, a panel a head; None where the study has no heads."""
    heads = along.study.heads
    if not heads:
        return None
    columns = min(2, heads)
    rows = -(-heads // columns)
    with styled():
        figure = new_figure(COLUMN_WIDTH, 1.75 * rows + 0.9)
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
        for head, axes in enumerate(panels):
            axes.set_visible(head < heads)
            if head < heads:
                _draw_head(axes, along, head)
                last = head + columns >= heads
                along.scale.dress(axes, _WHOLE / columns if last else None)
                axes.set_xlabel("λ" if last else "")
        figure.supylabel("JS from the base's head (nats)", fontsize=10, color=INK)
        legend_of_runs(figure, along, bool(along.study.finished("seed", base=along.base.name)))
    return figure


def _draw_head(axes: Axes, along: Along, head: int) -> None:
    for other in range(along.study.heads):
        if other != head:
            along.draw_thin(axes, head_measure(other))
    seeds = [level for level in levels(along.study, along.base) if level.name == SEEDS_LEVEL]
    draw_levels(axes, along.estimates, seeds, head_measure(head))
    along.draw(axes, head_measure(head))
    axes.set_title(f"head {head}", loc="left")
    _dress(axes)


def draw_ranking(along: Along, bend: Bend) -> Figure | None:
    """Tau against lambda, and against JS; None where it is undefined throughout.

    Args:
        along: The adversaries.
        bend: What shape the loss of the same runs has.
    """
    if np.isnan(along.means(TAU)[:, 1]).all():
        return None
    every = [lv for lv in levels(along.study, along.base) if lv.name != UNIFORM_LEVEL]
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * _HEIGHT + 1.3)
        above, below = figure.subplots(2, 1, sharey=True)
        for axes in (above, below):
            names = draw_levels(axes, along.estimates, every, TAU)
            axes.set_ylabel("Tau with the base")
            _dress(axes)
        along.draw(above, TAU)
        along.scale.dress(above, _WIDE)
        above.set_xlabel(_LAMBDA)
        _draw_sides(below, along, bend)
        for axes in (above, below):
            name_at_right(axes, names, _HEIGHT * INCH)
        legend_of_runs(figure, along)
    return figure


def _draw_sides(axes: Axes, along: Along, bend: Bend) -> None:
    """Tau against JS, with the place of the bend and the mean on each of its sides."""
    for runs, draw in (
        (along.kept(along.runs), draw_runs),
        (along.collapse.of(along.runs), draw_collapsed),
    ):
        js, tau = (along.estimates.per_seed(runs, measure) for measure in (JS, TAU))
        draw(axes, js, tau, along.color)
    axes.set_xlabel("Mean JS from the base's attention (nats)")
    if bend.fits is None or bend.shape == NO_BEND:
        return
    place, ends = bend.fits.preferred.place, axes.get_xlim()
    axes.axvline(place, color=MUTED, lw=1.0, ls=":", zorder=2)
    for start, end, runs in zip((ends[0], place), (place, ends[1]), bend.sides, strict=True):
        mean = along.estimates.of(runs, TAU).mean
        axes.plot([start, end], [mean, mean], color=MUTED, lw=1.1, zorder=4)
    axes.set_xlim(*ends)
    _name_bend(axes, f"{bend.shape} at {number(place)}", place)


def _name_bend(axes: Axes, name: str, place: float) -> None:
    """Write on the side of the vertical line where there is more room."""
    low, high = axes.get_xlim()
    left = place > (low + high) / 2
    axes.annotate(
        name,
        (place, 1),
        (-4 if left else 4, -1),
        ("data", "axes fraction"),
        "offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=9,
        color=MUTED,
    )


def bend_words(bend: Bend) -> str:
    """What the caption of the rankings says of a bend."""
    return "" if bend.shape == NO_BEND else _BEND.format(shape=bend.shape)


def _dress(axes: Axes) -> None:
    axes.grid()
    axes.set_axisbelow(True)
    axes.margins(y=0.08)
