"""Figures of adversaries along lambda, and of their loss against divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnlight.report.study import series
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, TAU, TVD, Estimates
from attnlight.report.study.groups import CONTROL, SEEDS, UNIFORM
from attnlight.report.study.shapes import NO_BEND, Bend, find_bend
from attnlight.report.study.texts import capital
from attnlight.report.style import INK, MUTED, POOLED
from attnlight.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.statistics.changepoint import Segments

_NAMES = {NLL_BASE: "NLL of the base's labels (nats)", NLL_GOLD: "NLL of gold labels (nats)"}
_EACH = ("a run", "mean over seeds")
_LINES = {"line": ":", "kink": "-", "jump": (0, (5, 2))}
_MEAN_JS = "Mean JS from the base's attention (nats)"


def draw_outcome(estimates: Estimates, base: str, term: str) -> Figure:
    """Quality and TVD of the adversaries of a base and attention term, against lambda."""
    study, every = estimates.study, series.of_base(estimates.study, base)
    with series.panels(5.6, 2) as (figure, (above, below)):
        for axes, measure in ((above, study.quality), (below, TVD)):
            series.draw_bands(axes, estimates, every, [UNIFORM, SEEDS, CONTROL], measure)
            series.draw(axes, estimates, every[term], "lam", measure, names=_EACH)
            series.lambda_axis(axes, every[term].lambdas, named=axes is below)
        below.set(xlabel=series.LAMBDA, ylabel="TVD from the base")
        above.set_ylabel(capital(study.words.quality))
    return figure


def draw_heads(estimates: Estimates, base: str, term: str) -> Figure | None:
    """JS of each head against lambda, a panel a head; None where the study has no heads."""
    every, measures = series.of_base(estimates.study, base), estimates.heads
    heads = len(measures)
    if not measures:
        return None
    columns = min(2, heads)
    rows = -(-heads // columns)
    with series.panels(1.75 * rows + 0.9, rows, columns, names=4, sharey=True) as (figure, shown):
        for head, axes in enumerate(shown):
            axes.set_visible(head < heads)
            if head == heads:
                break
            for other in (name for name in measures if name != measures[head]):
                at = series.means(estimates, every[term], "lam", other)
                axes.plot(*at, "-", color=POOLED, alpha=0.5, lw=1.1, zorder=3)
            series.draw_bands(axes, estimates, every, [SEEDS], measures[head])
            series.draw(axes, estimates, every[term], "lam", measures[head], names=_EACH)
            last = head + columns >= heads
            series.lambda_axis(axes, every[term].lambdas, named=last)
            axes.set_title(f"head {head}", loc="left")
            axes.set_xlabel("λ" if last else "")
        figure.supylabel("JS from the base's head (nats)", fontsize=10, color=INK)
    return figure


def draw_ranking(estimates: Estimates, base: str, term: str, bend: Bend) -> Figure | None:
    """Tau against lambda, and against JS; None where it is undefined throughout.

    Args:
        estimates: Estimates of the study.
        base: The base.
        term: The attention term.
        bend: What shape the loss of the same runs has.
    """
    every = series.of_base(estimates.study, base)
    if np.isnan(series.means(estimates, every[term], "lam", TAU)[1]).all():
        return None
    with series.panels(5.7, 2, sharey=True) as (figure, (above, below)):
        for axes, x, mean in ((above, "lam", 5), (below, JS, 0)):
            series.draw_bands(axes, estimates, every, [SEEDS, CONTROL], TAU)
            series.draw(axes, estimates, every[term], x, TAU, mean=mean, names=_EACH)
            axes.set_ylabel("Tau with the base")
        series.lambda_axis(above, every[term].lambdas)
        above.set_xlabel(series.LAMBDA)
        below.set_xlabel(_MEAN_JS)
        if bend.fits is None or bend.shape == NO_BEND:
            return figure
        place, ends = bend.fits.preferred.place, below.get_xlim()
        below.axvline(place, color=MUTED, lw=1.0, ls=":", zorder=2)
        for start, end, runs in zip((ends[0], place), (place, ends[1]), bend.sides, strict=True):
            tau = estimates.of(runs, TAU).mean
            below.plot([start, end], [tau, tau], color=MUTED, lw=1.1, zorder=4)
        below.set_xlim(*ends)
        left = place > sum(ends) / 2  # the name stands on the side where there is more room
        at: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        at |= {"xytext": (-4 if left else 4, -1), "ha": "right" if left else "left", "va": "top"}
        name = f"{bend.shape} at {number(place)}"
        below.annotate(name, (place, 1), fontsize=9, color=MUTED, **at)
    return figure


def draw_tradeoff(estimates: Estimates, base: str) -> Figure:
    """Both losses against JS, with a line, a kink and a jump, that of the least BIC in front."""
    every = series.of_base(estimates.study, base)
    sizes = {CONTROL: (5, 0), SEEDS: (0, 7), UNIFORM: (0, 7)}  # of runs and of their mean
    with series.panels(6.0, 2, sharex=True) as (figure, shown):
        for axes, (measure, name) in zip(shown, _NAMES.items(), strict=True):
            for group, one in every.items():
                above = [g for g, lam in zip(one.groups, one.lambdas, strict=False) if lam > 0]
                run, mean = sizes.get(group, (3.6, 0))
                drawn = one._replace(groups=above or one.groups)
                series.draw(axes, estimates, drawn, JS, measure, run=run, mean=mean)
            axes.set_ylabel(name)
            bend = find_bend(estimates, base, measure)
            if bend.fits is not None:
                _draw_fits(axes, bend.fits, bend.js.min(), bend.js.max())
        shown[-1].set_xlabel(_MEAN_JS)
    return figure


def _draw_fits(axes: Axes, fits: Segments, low: float, high: float) -> None:
    """Fitted shapes with a legend of their own."""
    lines = {}
    for fit in fits:
        best = fit is fits.preferred
        more = "least BIC" if best else f"BIC +{fit.bic - fits.preferred.bic:.1f}"
        where = "" if fit.shape == "line" else f" at {number(fit.place)}"
        look: dict[str, Any] = {"color": INK if best else MUTED, "lw": 1.6 if best else 1.1}
        x = np.array([low, high] if fit.shape == "line" else [low, *[fit.place] * 3, high])
        y = fit.at(x)
        if fit.shape == "jump":
            y[2:4] = np.nan, y[2] + fit.change  # parted at the jump
        (line,) = axes.plot(x, y, zorder=4, ls=_LINES[fit.shape], **look)
        lines[f"{fit.shape}{where}, {more}"] = line
    axes.legend(lines.values(), lines, loc="upper left", handlelength=2.6)
