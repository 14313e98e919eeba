"""The figures of a study, each where the columns that it needs are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study import groups, series
from attnlight.report.study.estimates import JS, NLL_BASE, TAU, TVD, Estimates
from attnlight.report.study.groups import BEST, CONTROL, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.shapes import LOSSES, NO_BEND, Bend, find_bend
from attnlight.report.study.texts import capital, text
from attnlight.report.style import INK, MUTED, PALETTE, POOLED
from attnlight.report.tables import number
from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs, Study
    from attnlight.statistics.changepoint import Segments

_LIMIT = 0.7  # of both axes of figure 5 in the paper
_CLOSE = (0.13, 0.06)  # names nearer than this, in shares of the axes, would overlap
_JS_LABEL = "Jensen-Shannon divergence from the base's attention (nats)"
_MEAN_JS = "Mean JS from the base's attention (nats)"
_EACH = ("a run", "mean over seeds")
_LINES = {"line": ":", "kink": "-", "jump": (0, (5, 2))}


def figures(estimates: Estimates) -> Iterator[tuple[str, Figure | None, Mapping[str, object]]]:
    """The figures of a study, each drawn when its turn comes: kind, figure, what its texts name.

    Figure 5 needs what the base's own encoder allows (`worst_js`), its violins the base's largest
    attention weight; without them adversaries are drawn along lambda, and guides side by side.
    """
    study, chosen = estimates.study, estimates.study.selected
    bounded, words = "worst_js" in study.measures, groups.words(study)
    for base in study.bases:
        known = {**words, "base": base}
        if bounded:
            yield "figure5", draw_figure5(estimates, base), known
            named = groups.named(study, base)
            best = f"adversaries ({groups.term_name(*chosen)})" if chosen else ""
            for group, name, stem in ((SEEDS, SEEDS, "seeds"), (BEST, best, "adversary")):
                count, made = len(named[group]), draw_violins(study, base, named[group])
                runs = f"{count} {name}" if count > 1 else f"one of the {name}"
                yield "violins", made, known | {"runs": runs, "group": name, "stem": stem}
            continue
        terms = groups.paths(study, base)
        if terms and {*LOSSES} <= {*study.measures}:
            yield "tradeoff", draw_tradeoff(estimates, base), known
        for term in terms:
            bend = find_bend(estimates, base, NLL_BASE, term)
            said = "" if bend.shape == NO_BEND else text("answers", "bend_drawn", shape=bend.shape)
            more = {"term": groups.term_name(term), "stem": f"{term}-{base}", "bend": said}
            yield "outcome", draw_outcome(estimates, base, term), known | more
            yield "heads", draw_heads(estimates, base, term), known | more
            yield "ranking", draw_ranking(estimates, base, term, bend), known | more
    if not bounded:
        yield "guides", draw_guides(estimates), words


def draw_figure5(estimates: Estimates, base: str) -> Figure | None:
    """Mean JS against mean TVD of all that was trained from a base; None where nothing was.

    What attention over the base's own encoder can reach stands beside, exactly and by search.
    """
    every, study = list(series.of_base(estimates, base).values()), estimates.study
    if not every:
        return None
    runs = study.runs.loc[[name for one in every for group in one.groups for name in group.index]]
    points = np.stack([estimates.per_seed(runs, measure) for measure in (TVD, JS)], axis=1)
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    margin = np.maximum(0.12 * (high - low), 0.01)
    frontier = study.runs.at[base, "frontier"]
    own = study.finished("base", base=base)
    search = [estimates.per_seed(own, f"search_{what}") for what in ("tvd", "js")]
    mark: dict[str, Any] = {"ms": 8, "mfc": INK, "mec": "white", "mew": 0.8, "ls": ""}
    with series.panels(6.6, 2, names=2) as (figure, (whole, near)):
        for axes in (whole, near):
            if frontier is not None:
                tvd, js = frontier
                x, y = [*tvd, 1.0], [*js, js[-1]]  # flat after its last corner
                axes.plot(x, y, color=MUTED, lw=1.3, label="frontier of the base")
            if len(own) and not np.isnan(search).any():
                axes.plot(*search, "X", label="Jain & Wallace's search", **mark)
            for one in every:
                one.draw(axes, TVD, JS, mean=6)
            axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
            axes.set_xlabel("Mean total variation distance from the base's prediction")
            axes.set_ylabel("Mean divergence of attention (nats)")
        whole.set(xlim=(-0.01, _LIMIT), ylim=(0, _LIMIT + 0.02))
        if frontier is not None:
            said = "The frontier bounds the base's own encoder; adversaries may lie above it"
            whole.set_title(said, fontsize=9)
        (left, bottom), (right, top) = low - margin, high + margin
        near.set(xlim=(left, right), ylim=(bottom, top))
        for k, one in enumerate(every):
            _name_lambdas(near, one, above=k % 2 == 0)
    return figure


def _name_lambdas(axes: Axes, one: series.Series, above: bool) -> None:
    """Write each lambda above 0 beside its mean, unless it would overlap the one before."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    places = (one.means(TVD, JS).T - [left, low]) / [right - left, high - low]
    written: list[NDArray[np.float64]] = []
    look: dict[str, Any] = {"ha": "left", "va": "top", "xytext": (7, -5)}
    if above:
        look = {"ha": "right", "va": "bottom", "xytext": (-7, 5)}
    look |= {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8}
    for lam, place in zip(one.lambdas, places, strict=bool(one.lambdas)):
        if lam > 0 and not any((np.abs(place - other) < _CLOSE).all() for other in written):
            written.append(place)
            axes.annotate(f"λ = {lam:g}", tuple(place), color=one.color, **look)


def draw_violins(study: Study, base: str, runs: Runs) -> Figure | None:
    """Each text's median divergence over some variants of a base; None where it is undefined."""
    import pandas as pd

    own = study.finished("base", base=base)
    if not (len(runs) and len(own)):
        return None
    measured = study.measures.loc[list(runs.index)].unstack("run")
    columns = {
        "prediction": study.measures.loc[own.index[0], "prediction"],
        "max_attention": measured["base_max_attention"].iloc[:, 0],
        JS: measured[JS].median(axis=1, skipna=False),
    }
    texts = pd.DataFrame(columns).dropna().query("prediction >= 0")
    if texts.empty:
        return None
    rows = {name: texts[name].to_numpy() for name in columns}
    figure = violins_by_max_attention(rows, JS, _JS_LABEL, (-0.05, 0.73), study.classes)
    figure.axes[0].set_ylabel("Maximum attention weight of the base")
    return figure


def draw_guides(estimates: Estimates) -> Figure | None:
    """Quality by guide, a panel for each context; None where no guided model is finished.

    A guide's row is its seeds, and their mean with its interval.
    """
    study, quality, found = estimates.study, estimates.study.quality, {}
    for context, by_guide in groups.guides(study).items():
        if finished := {guide: runs for guide, runs in by_guide.items() if len(runs)}:
            found[context] = finished
    if not found:
        return None
    sizes = [len(by_guide) for by_guide in found.values()]
    height = 0.27 * sum(sizes) + 0.62 * len(sizes) + 0.55
    shared: dict[str, Any] = {"sharex": True, "height_ratios": [size + 0.6 for size in sizes]}
    named, looks = groups.named(study), {TRAINED: SEEDS, UNIFORM: UNIFORM}
    bands = [
        series.Series(estimates, name, *series.LOOKS[look], [named[name]])
        for name, look in looks.items()
    ]
    with series.panels(height, len(sizes), names=2, **shared) as (figure, shown):
        for axes, (context, by_guide) in zip(shown, found.items(), strict=True):
            axes.grid(visible=False, axis="y")
            for band in bands:
                band.draw_band(axes, quality, across=True)
            for row, runs in enumerate(by_guide.values()):
                values, mean = estimates.per_seed(runs, quality), estimates.of(runs, quality)
                look: dict[str, Any] = {"color": INK, "alpha": 0.5, "ms": 3, "mew": 0, "zorder": 5}
                axes.plot(values, np.full(len(values), row + 0.24), "o", **look)
                look = {"color": PALETTE[0], "mec": "white", "mew": 0.8}
                axes.plot([mean.low, mean.high], [row, row], "-", lw=1.8, zorder=4, **look)
                axes.plot(mean.mean, row, "o", ms=5.5, zorder=6, **look)
            names = [groups.guide_name(study, guide, "of") for guide in by_guide]
            axes.set_yticks(range(len(names)), [name.partition(" within")[0] for name in names])
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=6)
            name = groups.guided_name(study, context).partition(" ")[2]
            axes.set_title(capital(name), loc="left", pad=6)
        shown[-1].set_xlabel(capital(study.words.quality))
    return figure


def draw_outcome(estimates: Estimates, base: str, term: str) -> Figure:
    """Quality and TVD of the adversaries of a base and attention term, against lambda."""
    study, every = estimates.study, series.of_base(estimates, base)
    with series.panels(5.6, 2) as (figure, (above, below)):
        for axes, measure in ((above, study.quality), (below, TVD)):
            for one in (every[name] for name in series.LOOKS if name in every):
                one.draw_band(axes, measure)
            every[term].draw(axes, "lam", measure, names=_EACH)
            series.lambda_axis(axes, every[term].lambdas, named=axes is below)
        below.set(xlabel=series.LAMBDA, ylabel="TVD from the base")
        above.set_ylabel(capital(study.words.quality))
    return figure


def draw_heads(estimates: Estimates, base: str, term: str) -> Figure | None:
    """JS of each head against lambda, a panel a head; None where the study has no heads."""
    every, measures = series.of_base(estimates, base), estimates.heads
    if not measures:
        return None
    columns = min(2, len(measures))
    rows = -(-len(measures) // columns)
    with series.panels(1.75 * rows + 0.9, rows, columns, names=4, sharey=True) as (figure, shown):
        for axes in shown[len(measures) :]:
            axes.set_visible(False)
        for head, (axes, measure) in enumerate(zip(shown, measures, strict=False)):
            for other in (name for name in measures if name != measure):
                at = every[term].means("lam", other)
                axes.plot(*at, "-", color=POOLED, alpha=0.5, lw=1.1, zorder=3)
            if SEEDS in every:
                every[SEEDS].draw_band(axes, measure)
            every[term].draw(axes, "lam", measure, names=_EACH)
            last = head + columns >= len(measures)
            series.lambda_axis(axes, every[term].lambdas, named=last)
            axes.set_title(f"head {head}", loc="left")
            axes.set_xlabel("λ" if last else "")
        figure.supylabel("JS from the base's head (nats)", fontsize=10, color=INK)
    return figure


def draw_ranking(estimates: Estimates, base: str, term: str, bend: Bend) -> Figure | None:
    """Tau against lambda, and against JS with the bend of the loss; None where it is undefined."""
    every = series.of_base(estimates, base)
    if np.isnan(every[term].means("lam", TAU)[1]).all():
        return None
    with series.panels(5.7, 2, sharey=True) as (figure, (above, below)):
        for axes, x, mean in ((above, "lam", 5), (below, JS, 0)):
            for one in (every[name] for name in (SEEDS, CONTROL) if name in every):
                one.draw_band(axes, TAU)
            every[term].draw(axes, x, TAU, mean=mean, names=_EACH)
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
    every = series.of_base(estimates, base)
    sizes = {CONTROL: (5, 0), SEEDS: (0, 7), UNIFORM: (0, 7)}  # of runs and of their mean
    with series.panels(6.0, 2, sharex=True) as (figure, shown):
        for axes, (measure, name) in zip(shown, LOSSES.items(), strict=True):
            for group, one in every.items():
                above = [g for g, lam in zip(one.groups, one.lambdas, strict=False) if lam > 0]
                run, mean = sizes.get(group, (3.6, 0))
                drawn = one._replace(groups=above or one.groups)
                drawn.draw(axes, JS, measure, run=run, mean=mean)
            axes.set_ylabel(f"NLL of {name} (nats)")
            bend = find_bend(estimates, base, measure)
            if bend.fits is not None:
                _draw_fits(axes, bend.fits, bend.runs["js"].min(), bend.runs["js"].max())
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
