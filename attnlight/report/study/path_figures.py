"""Figures of adversaries along lambda, and of their loss against divergence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study import groups, marks
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, TAU, TVD, Estimates
from attnlight.report.study.groups import CONTROL, SEEDS
from attnlight.report.study.marks import Drawing
from attnlight.report.study.shapes import NO_BEND, Bend, Collapse, find_bend, find_collapses
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import capital
from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, POOLED, new_figure, styled
from attnlight.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs
    from attnlight.statistics.changepoint import Fit

_NAMES = {NLL_BASE: "NLL of the base's labels", NLL_GOLD: "NLL of gold labels"}
_LINES = {"line": ":", "kink": "-", "jump": (0, (5, 2))}
_HEIGHT = 2.2  # inches of a panel
_MEAN_JS = "Mean JS from the base's attention (nats)"


class Along:
    """The adversaries of one base and attention term from lambda 0 upwards.

    Args:
        estimates: Estimates of the study.
        base: The base.
        term: A term that has finished adversaries of the base at a lambda above 0.
        collapse: Which of these collapsed.
    """

    def __init__(self, estimates: Estimates, base: str, term: str, collapse: Collapse) -> None:
        self.study, self.estimates = estimates.study, estimates
        self.base, self.term, self.collapse = base, term, collapse
        self.cells, self.color = groups.path(self.study, base, term=term), marks.color_of(term)
        self.lambdas = [cell.lam for cell in self.cells]
        self.runs = groups.adversaries(self.study, base, term)

    def means(self, measure: str) -> NDArray[np.float64]:
        """Each lambda and the mean over its runs that did not collapse, (L, 2)."""
        kept = [self.collapse.rest(cell.runs) for cell in self.cells]
        means = [self.estimates.of(runs, measure).mean for runs in kept]
        return np.array([self.lambdas, means]).T

    def draw_runs(self, axes: Axes, x: str, y: str) -> None:
        """A mark for each run, a cross where it collapsed; x and y are measures, or `lam`."""
        for runs, style in (
            (self.collapse.rest(self.runs), marks.POINT | {"alpha": 0.55, "label": "a run"}),
            (self.collapse.of(self.runs), marks.crossed(self.color)),
        ):
            if len(runs):
                at = runs["lam"] if x == "lam" else self.estimates.per_seed(runs, x)
                axes.plot(at, self.estimates.per_seed(runs, y), color=self.color, **style)

    def draw(self, axes: Axes, measure: str) -> None:
        """A mark for each run by lambda, and a line through the means of those that stand.

        The line is broken where all runs of a lambda collapsed.
        """
        self.draw_runs(axes, "lam", measure)
        style = marks.MEAN | {"color": self.color, "label": "mean over seeds"}
        axes.plot(*self.means(measure).T, **style)


def path_figures(estimates: Estimates) -> Iterator[Drawing]:
    """The figures of adversaries of each base, and of each of its attention terms."""
    study = estimates.study
    for base in study.bases:
        collapse = find_collapses(study, base)
        if {NLL_BASE, NLL_GOLD} <= set(study.measures):
            made = draw_tradeoff(estimates, base, collapse)
            if made is not None:
                title = f"Loss against divergence, {base}"
                yield Drawing(
                    title, f"tradeoff-{base}", made, text("captions", "tradeoff", base=base)
                )
        for term in groups.terms(study, base):
            yield from _of_term(Along(estimates, base, term, collapse))


def _of_term(along: Along) -> Iterator[Drawing]:
    words, name, stem = (
        along.study.words,
        groups.term_name(along.term),
        f"{along.term}-{along.base}",
    )
    known = {"base": along.base, "term": name, "quality": capital(words.quality)}
    known |= {"cluster": words.cluster, "instance": words.instance}
    bend = find_bend(along.estimates, along.base, NLL_BASE, along.term)
    shown = bend.shape != NO_BEND
    known["bend"] = text("captions", "bend", shape=bend.shape) if shown else ""
    for kind, title, made in (
        ("outcome", f"{known['quality']} and TVD by lambda", draw_outcome(along)),
        ("heads", "JS of each head by lambda", draw_heads(along)),
        ("ranking", "Rankings of words by lambda", draw_ranking(along, bend)),
    ):
        if made is not None:
            caption = text("captions", kind, **known)
            yield Drawing(f"{title}, {name}", f"{kind}-{stem}", made, caption)


def draw_outcome(along: Along) -> Figure:
    """Quality and TVD against lambda."""
    study = along.study
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * _HEIGHT + 1.2)
        every = figure.subplots(2, 1)
        for axes, measure in zip(every, (study.quality, TVD), strict=True):
            marks.draw_bands(axes, along.estimates, marks.levels(study, along.base), measure)
            along.draw(axes, measure)
            marks.dress(axes)
            marks.lambda_axis(axes, along.lambdas, named=axes is every[-1])
        every[-1].set_xlabel(marks.LAMBDA)
        every[0].set_ylabel(capital(study.words.quality))
        every[1].set_ylabel("TVD from the base")
        marks.legend_above(figure, *every)
    return figure


def draw_heads(along: Along) -> Figure | None:
    """JS of each head against lambda, a panel a head; None where the study has no heads."""
    heads = along.study.heads
    if not heads:
        return None
    columns = min(2, heads)
    rows = -(-heads // columns)
    seeds = [level for level in marks.levels(along.study, along.base) if level.name == SEEDS]
    with styled():
        figure = new_figure(COLUMN_WIDTH, 1.75 * rows + 0.9)
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
        for panel in panels[heads:]:
            panel.set_visible(False)
        for head, axes in enumerate(panels[:heads]):
            for other in (other for other in range(heads) if other != head):
                means = along.means(f"attention_js_heads_{other}").T
                axes.plot(*means, "-", color=POOLED, alpha=0.5, lw=1.1, zorder=3)
            marks.draw_bands(axes, along.estimates, seeds, f"attention_js_heads_{head}")
            along.draw(axes, f"attention_js_heads_{head}")
            marks.dress(axes)
            last = head + columns >= heads
            marks.lambda_axis(axes, along.lambdas, named=last)
            axes.set_title(f"head {head}", loc="left")
            axes.set_xlabel("λ" if last else "")
        figure.supylabel("JS from the base's head (nats)", fontsize=10, color=INK)
        marks.legend_above(figure, *panels[:heads], columns=4)
    return figure


def draw_ranking(along: Along, bend: Bend) -> Figure | None:
    """Tau against lambda, and against JS; None where it is undefined throughout.

    Args:
        along: The adversaries.
        bend: What shape the loss of the same runs has.
    """
    if np.isnan(along.means(TAU)[:, 1]).all():
        return None
    every = [
        level for level in marks.levels(along.study, along.base) if level.name != marks.UNIFORM
    ]
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * _HEIGHT + 1.3)
        above, below = figure.subplots(2, 1, sharey=True)
        for axes in (above, below):
            marks.draw_bands(axes, along.estimates, every, TAU)
            axes.set_ylabel("Tau with the base")
            marks.dress(axes)
        along.draw(above, TAU)
        marks.lambda_axis(above, along.lambdas)
        above.set_xlabel(marks.LAMBDA)
        along.draw_runs(below, JS, TAU)
        below.set_xlabel(_MEAN_JS)
        _draw_sides(below, along.estimates, bend)
        marks.legend_above(figure, above)
    return figure


def _draw_sides(axes: Axes, estimates: Estimates, bend: Bend) -> None:
    """The place of the bend, and the mean tau on each of its sides."""
    if bend.fits is None or bend.shape == NO_BEND:
        return
    place, ends = bend.fits.preferred.place, axes.get_xlim()
    axes.axvline(place, color=MUTED, lw=1.0, ls=":", zorder=2)
    for start, end, runs in zip((ends[0], place), (place, ends[1]), bend.sides, strict=True):
        mean = estimates.of(runs, TAU).mean
        axes.plot([start, end], [mean, mean], color=MUTED, lw=1.1, zorder=4)
    axes.set_xlim(*ends)
    left = place > sum(ends) / 2  # on the side where there is more room
    at: dict[str, Any] = {"xy": (place, 1), "xycoords": ("data", "axes fraction"), "va": "top"}
    at |= {"xytext": (-4 if left else 4, -1), "textcoords": "offset points"}
    name = f"{bend.shape} at {number(place)}"
    axes.annotate(name, ha="right" if left else "left", fontsize=9, color=MUTED, **at)


def draw_tradeoff(estimates: Estimates, base: str, collapse: Collapse) -> Figure | None:
    """Both losses against JS, with a line, a kink and a jump.

    Returns:
        The figure; None where the base has no adversary at a lambda above 0.
    """
    if not groups.terms(estimates.study, base):
        return None
    with styled():
        figure = new_figure(COLUMN_WIDTH, 2 * 2.5 + 1.0)
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (measure, name) in zip(panels, _NAMES.items(), strict=True):
            _draw_marks(axes, estimates, base, collapse, measure)
            axes.set_ylabel(f"{name} (nats)")
            marks.dress(axes)
        panels[-1].set_xlabel(_MEAN_JS)
        marks.legend_above(figure, *panels)
        for axes, measure in zip(panels, _NAMES, strict=True):
            _draw_fits(axes, find_bend(estimates, base, measure))
    return figure


def _draw_marks(
    axes: Axes, estimates: Estimates, base: str, collapse: Collapse, measure: str
) -> None:
    """Each adversary, crosses where it collapsed, and the mean of each other group."""
    plain: dict[str, Any] = {"ls": "", "zorder": 6}

    def draw(runs: Runs, style: dict[str, Any], mean: bool = False) -> None:
        points = np.stack([estimates.per_seed(runs, m) for m in (JS, measure)])
        points = points.mean(axis=1, keepdims=True) if mean else points
        if len(runs):
            axes.plot(*points, **plain | style)

    every = groups.adversaries(estimates.study, base)
    for term in groups.terms(estimates.study, base):
        own = every[(every["term"] == term) & (every["lam"] > 0)]
        label = f"adversary, {groups.term_name(term)}"
        look: dict[str, Any] = {
            "marker": "o",
            "ms": 3.6,
            "mew": 0,
            "color": marks.color_of(term),
            "label": label,
        }
        draw(collapse.rest(own), look)
    for level in marks.levels(estimates.study, base):
        control = level.name == CONTROL
        style: dict[str, Any] = {
            "marker": marks.MARKERS[level.name],
            "ms": 5 if control else 7,
            "label": level.name,
        }
        style |= {"color": level.color, "mec": "white", "mew": 0.8}
        draw(every[every["lam"] == 0] if control else level.runs, style, mean=not control)
    for term in groups.terms(estimates.study, base):
        draw(collapse.of(every[every["term"] == term]), marks.crossed(marks.color_of(term)))


def _draw_fits(axes: Axes, bend: Bend) -> None:
    """The fitted shapes, the one with the least BIC in front, and a legend of their own."""
    if bend.fits is None:
        return
    best, lines = bend.fits.preferred, []
    for fit in bend.fits:
        more = "least BIC" if fit is best else f"BIC +{fit.bic - best.bic:.1f}"
        where = "" if fit.shape == "line" else f" at {number(fit.place)}"
        style: dict[str, Any] = (
            {"color": INK, "lw": 1.6} if fit is best else {"color": MUTED, "lw": 1.1}
        )
        style |= {"ls": _LINES[fit.shape], "label": f"{fit.shape}{where}, {more}"}
        lines += axes.plot(*_curve(fit, bend.js.min(), bend.js.max()), zorder=4, **style)
    axes.legend(handles=lines, loc="upper left", handlelength=2.6)


def _curve(fit: Fit, low: float, high: float) -> NDArray[np.float64]:
    """Points of a fitted shape, (2, m), parted at a jump."""
    x = np.array([low, high] if fit.shape == "line" else [low, *[fit.place] * 3, high])
    y = fit.at(x)
    if fit.shape == "jump":
        y[2:4] = np.nan, y[2] + fit.change
    return np.stack([x, y])
