"""The figures of a study, each where the columns that it needs are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study import groups, series
from attnlight.report.study.estimates import JS, NLL_BASE, NLL_GOLD, TVD, Estimates
from attnlight.report.study.groups import BEST, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.path_figures import (
    draw_heads,
    draw_outcome,
    draw_ranking,
    draw_tradeoff,
)
from attnlight.report.study.shapes import NO_BEND, find_bend
from attnlight.report.study.texts import capital, text
from attnlight.report.style import INK, MUTED, PALETTE
from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs, Study

_LIMIT = 0.7  # of both axes of figure 5 in the paper
_CLOSE = (0.13, 0.06)  # names nearer than this, in shares of the axes, would overlap
_JS_LABEL = "Jensen-Shannon divergence from the base's attention (nats)"


def figures(estimates: Estimates) -> Iterator[series.Drawing]:
    """The figures of a study, each drawn when its turn comes.

    Figure 5 needs what the base's own encoder allows (`worst_js`), its violins the base's largest
    attention weight; without them adversaries are drawn along lambda, and guides side by side.
    """
    study = estimates.study
    for base in study.bases:
        if "worst_js" in study.measures:
            yield from _of_bounds(estimates, base)
        else:
            yield from _of_paths(estimates, base)
    if "worst_js" not in study.measures:
        made = draw_guides(estimates)
        if made is not None:
            yield series.drawing("guides", made, **groups.words(study))


def _of_bounds(estimates: Estimates, base: str) -> Iterator[series.Drawing]:
    study, chosen = estimates.study, estimates.study.selected
    named = groups.named(study, base)
    made = draw_figure5(estimates, base)
    if made is not None:
        yield series.drawing("figure5", made, base=base)
    best = f"adversaries ({groups.term_name(*chosen)})" if chosen else ""
    for group, name, stem in ((SEEDS, SEEDS, "seeds"), (BEST, best, "adversary")):
        made, count = draw_violins(study, base, named[group]), len(named[group])
        if made is not None:
            runs = f"{count} {name}" if count > 1 else f"one of the {name}"
            yield series.drawing("violins", made, base=base, runs=runs, group=name, stem=stem)


def _of_paths(estimates: Estimates, base: str) -> Iterator[series.Drawing]:
    study, terms = estimates.study, groups.paths(estimates.study, base)
    if terms and {NLL_BASE, NLL_GOLD} <= set(study.measures):
        yield series.drawing("tradeoff", draw_tradeoff(estimates, base), base=base)
    known = groups.words(study) | {"base": base}
    for term in terms:
        bend = find_bend(estimates, base, NLL_BASE, term)
        said = "" if bend.shape == NO_BEND else text("answers", "bend_drawn", shape=bend.shape)
        known |= {"term": groups.term_name(term), "stem": f"{term}-{base}", "bend": said}
        for kind, made in (
            ("outcome", draw_outcome(estimates, base, term)),
            ("heads", draw_heads(estimates, base, term)),
            ("ranking", draw_ranking(estimates, base, term, bend)),
        ):
            if made is not None:
                yield series.drawing(kind, made, **known)


def draw_figure5(estimates: Estimates, base: str) -> Figure | None:
    """Mean JS against mean TVD of all that was trained from a base.

    Returns:
        The figure; None where nothing was.
    """
    every, study = list(series.of_base(estimates.study, base).values()), estimates.study
    if not every:
        return None
    runs = study.runs.loc[[name for one in every for group in one.groups for name in group.index]]
    points = np.stack([estimates.per_seed(runs, measure) for measure in (TVD, JS)], axis=1)
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    margin = np.maximum(0.12 * (high - low), 0.01)
    with series.panels(6.6, 2, names=2) as (figure, (whole, near)):
        for axes in (whole, near):
            _draw_bounds(axes, estimates, base)
            for one in every:
                series.draw(axes, estimates, one, TVD, JS, mean=6)
            axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
            axes.set_xlabel("Mean total variation distance from the base's prediction")
            axes.set_ylabel("Mean divergence of attention (nats)")
        whole.set(xlim=(-0.01, _LIMIT), ylim=(0, _LIMIT + 0.02))
        if study.runs.at[base, "frontier"] is not None:
            said = "The frontier bounds the base's own encoder; adversaries may lie above it"
            whole.set_title(said, fontsize=9)
        (left, bottom), (right, top) = low - margin, high + margin
        near.set(xlim=(left, right), ylim=(bottom, top))
        for k, one in enumerate(every):
            _name_lambdas(near, one, series.means(estimates, one, TVD, JS), above=k % 2 == 0)
    return figure


def _name_lambdas(axes: Axes, one: series.Series, at: NDArray[np.float64], above: bool) -> None:
    """Write each lambda above 0 beside its mean (2, G), unless it would overlap the one before."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    places = (at.T - [left, low]) / [right - left, high - low]
    written: list[NDArray[np.float64]] = []
    for lam, place in zip(one.lambdas, places, strict=bool(one.lambdas)):
        if lam > 0 and not any((np.abs(place - other) < _CLOSE).all() for other in written):
            written.append(place)
            look: dict[str, Any] = {"ha": "right", "va": "bottom", "xytext": (-7, 5)}
            if not above:
                look = {"ha": "left", "va": "top", "xytext": (7, -5)}
            look |= {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8}
            axes.annotate(f"λ = {lam:g}", tuple(place), color=one.color, **look)


def _draw_bounds(axes: Axes, estimates: Estimates, base: str) -> None:
    """What attention over the base's own encoder can reach, exactly and as a search finds it."""
    corners = estimates.study.runs.at[base, "frontier"]
    if corners is not None:
        tvd, js = (np.asarray(values, dtype=np.float64) for values in corners)
        x, y = np.r_[tvd, 1.0], np.r_[js, js[-1]]  # flat after its last corner
        axes.plot(x, y, color=MUTED, lw=1.3, label="frontier of the base")
    own = estimates.study.finished("base", base=base)
    found = [estimates.per_seed(own, f"search_{what}") for what in ("tvd", "js")]
    if len(own) and not np.isnan(found).any():
        style: dict[str, Any] = {"ms": 8, "mfc": INK, "mec": "white", "mew": 0.8, "ls": ""}
        axes.plot(*found, "X", label="Jain & Wallace's search", **style)


def draw_violins(study: Study, base: str, runs: Runs) -> Figure | None:
    """Each text's median divergence over some variants of a base.

    Returns:
        The figure; None where the base or every variant is unfinished, or nothing is defined.
    """
    own = study.finished("base", base=base)
    if not (len(runs) and len(own)):
        return None
    js, attention = (study.values(runs, name) for name in (JS, "base_max_attention"))
    prediction = study.values(own, "prediction")[0]
    kept = (prediction >= 0) & ~np.isnan(js).any(axis=0) & ~np.isnan(attention[0])
    if not kept.any():
        return None
    rows = {"prediction": prediction[kept], "max_attention": attention[0][kept]}
    rows[JS] = np.median(js[:, kept], axis=0)
    figure = violins_by_max_attention(rows, JS, _JS_LABEL, (-0.05, 0.73), study.classes)
    figure.axes[0].set_ylabel("Maximum attention weight of the base")
    return figure


def draw_guides(estimates: Estimates) -> Figure | None:
    """Quality by guide, a panel for each context; None where no guided model is finished."""
    study, found = estimates.study, {}
    for context in groups.contexts(study):
        finished = {
            guide: runs for guide, runs in groups.guides(study, context).items() if len(runs)
        }
        if finished:
            found[context] = finished
    if not found:
        return None
    rows = [len(by_guide) for by_guide in found.values()]
    height, ratios = 0.27 * sum(rows) + 0.62 * len(rows) + 0.55, [count + 0.6 for count in rows]
    shared: dict[str, Any] = {"sharex": True, "height_ratios": ratios}
    named, looks = groups.named(study), {TRAINED: SEEDS, UNIFORM: UNIFORM}
    bands = {
        name: series.Series(name, series.COLORS[look], "", [named[name]])
        for name, look in looks.items()
    }
    with series.panels(height, len(rows), names=2, grid="x", **shared) as (figure, shown):
        for axes, (context, by_guide) in zip(shown, found.items(), strict=True):
            series.draw_bands(axes, estimates, bands, looks, study.quality, across=True)
            _draw_guides(axes, estimates, by_guide)
            name = groups.guided_name(study, context).partition(" ")[2]
            axes.set_title(capital(name), loc="left", pad=6)
        shown[-1].set_xlabel(capital(study.words.quality))
    return figure


def _draw_guides(axes: Axes, estimates: Estimates, by_guide: dict[str, Runs]) -> None:
    """A row for each guide: its seeds, and their mean with its interval."""
    study = estimates.study
    for row, runs in enumerate(by_guide.values()):
        values = estimates.per_seed(runs, study.quality)
        found = estimates.of(runs, study.quality)
        places = np.full(len(values), row + 0.24)
        axes.plot(values, places, "o", color=INK, alpha=0.5, ms=3, mew=0, zorder=5)
        axes.plot([found.low, found.high], [row, row], "-", color=PALETTE[0], lw=1.8, zorder=4)
        axes.plot(found.mean, row, "o", color=PALETTE[0], ms=5.5, mec="white", mew=0.8, zorder=6)
    names = [groups.guide_name(study, guide, "of").partition(" within")[0] for guide in by_guide]
    axes.set_yticks(range(len(by_guide)), names)
    axes.set_ylim(len(by_guide) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=6)
