"""The figures of a study, each drawn if the study has the columns that it needs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures.methods import method_words
from attnlight.figures.style import INK, MUTED, PALETTE, POOLED
from attnlight.figures.tables import Rows, number
from attnlight.figures.violins import violins_by_max_attention
from attnlight.report.study import changepoints, groups, series
from attnlight.report.study.estimates import (
    JS,
    KL_ELEMENTS,
    NLL_BASE,
    NLL_GOLD,
    TAU,
    TVD,
    Estimates,
)
from attnlight.report.study.frame import ACCURACY, Runs, Study
from attnlight.report.study.groups import BEST, CONTROL, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.texts import capital, text
from attnlight.statistics.changepoint import Segments

_LIMIT = 0.7  # of both axes of figure 5 in the paper
_CLOSE = (0.13, 0.06)  # names nearer than this, in shares of the axes, would overlap
_JS_LABEL = "Jensen-Shannon divergence from the base's attention (nats)"
_MEAN_JS = "Mean JS from the base's attention (nats)"
_MEAN_KL = "KL from the base's attention, mean over elements (nats)"
_POS = {True: "The tagger reads POS tags", False: "The tagger reads no POS tags"}
_EACH = ("a run", "mean over seeds")
_LINES = {"line": ":", "kink": "-", "jump": (0, (5, 2))}


def figures(estimates: Estimates) -> Iterator[tuple[str, Figure | None, Mapping[str, object]]]:
    """Draw the figures of a study lazily: kind, figure, and the fields of its texts.

    Figure 5 needs the worst-case divergence over the base's encoder (`worst_js`), its violins the
    base's maximum attention weight; without them adversaries are drawn against lambda, and guides
    side by side.
    """
    study, chosen = estimates.study, estimates.study.selected
    bounded, words = "worst_js" in study.measures, groups.words(study)
    for base in study.bases:
        fields = {**words, "base": base}
        if bounded:
            yield "figure5", draw_figure5(estimates, base), fields
            named = groups.named_groups(study, base)
            best = f"adversaries ({groups.term_name(*chosen)})" if chosen else ""
            for group, name, stem in ((SEEDS, SEEDS, "seeds"), (BEST, best, "adversary")):
                count, figure = len(named[group]), draw_violins(study, base, named[group])
                runs = f"{count} {name}" if count > 1 else f"one of the {name}"
                yield "violins", figure, fields | {"runs": runs, "group": name, "stem": stem}
            continue
        terms = groups.lambda_paths(study, base)
        if terms and {*changepoints.LOSSES} <= {*study.measures}:
            kl = f" {text('answers', 'kl_drawn')}" if KL_ELEMENTS in estimates.measures else ""
            yield "tradeoff", draw_tradeoff(estimates, base), fields | {"kl": kl}
        for term in terms:
            changepoint = changepoints.find_changepoint(estimates, base, NLL_BASE, term)
            bend = text("answers", "bend_drawn", shape=changepoint.shape)
            by_term = {"term": groups.term_name(term), "stem": f"{term}-{base}"}
            by_term |= fields | {"bend": bend if changepoint.sides else ""}
            yield "outcome", draw_outcome(estimates, base, term), by_term
            yield "heads", draw_heads(estimates, base, term), by_term
            yield "ranking", draw_ranking(estimates, base, term, changepoint), by_term
    if not bounded:
        yield "guides", draw_guides(estimates), words
    if curves := groups.removals(study):
        yield "roar", draw_removals(estimates, curves), words


def draw_figure5(estimates: Estimates, base: str) -> Figure | None:
    """Mean JS against mean TVD of every model trained from a base; None if there is none.

    The exact frontier over the base's encoder and Jain & Wallace's search are drawn with them.
    """
    curves, study = list(series.series_of_base(estimates, base).values()), estimates.study
    if not curves:
        return None
    names = [name for curve in curves for group in curve.groups for name in group.index]
    runs = study.runs.loc[names]
    points = np.stack([estimates.per_seed(runs, measure) for measure in (TVD, JS)], axis=1)
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    margin = np.maximum(0.12 * (high - low), 0.01)
    frontier = study.runs.at[base, "frontier"]
    base_runs = study.finished("base", base=base)
    search = [estimates.per_seed(base_runs, f"search_{measure}") for measure in ("tvd", "js")]
    mark: dict[str, Any] = {"ms": 8, "mfc": INK, "mec": "white", "mew": 0.8, "ls": ""}
    with series.panels(6.6, 2, names=2) as (figure, (wide, zoomed)):
        for axes in (wide, zoomed):
            if frontier is not None:
                tvd, js = frontier
                x, y = [*tvd, 1.0], [*js, js[-1]]  # flat after its last corner
                axes.plot(x, y, color=MUTED, lw=1.3, label="frontier of the base")
            if len(base_runs) and not np.isnan(search).any():
                axes.plot(*search, "X", label="Jain & Wallace's search", **mark)
            for curve in curves:
                curve.draw(axes, TVD, JS, mean=6)
            axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
            axes.set_xlabel("Mean total variation distance from the base's prediction")
            axes.set_ylabel("Mean divergence of attention (nats)")
        wide.set(xlim=(-0.01, _LIMIT), ylim=(0, _LIMIT + 0.02))
        if frontier is not None:
            title = "The frontier bounds the base's own encoder; adversaries may lie above it"
            wide.set_title(title, fontsize=9)
        (left, bottom), (right, top) = low - margin, high + margin
        zoomed.set(xlim=(left, right), ylim=(bottom, top))
        for k, curve in enumerate(curves):
            _name_lambdas(zoomed, curve, above=k % 2 == 0)
    return figure


def _name_lambdas(axes: Axes, curve: series.Series, above: bool) -> None:
    """Write each lambda above 0 beside its mean, unless it would overlap another label."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    places = (curve.means(TVD, JS).T - [left, low]) / [right - left, high - low]
    written: list[NDArray[np.float64]] = []
    style: dict[str, Any] = {"ha": "left", "va": "top", "xytext": (7, -5)}
    if above:
        style = {"ha": "right", "va": "bottom", "xytext": (-7, 5)}
    style |= {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8}
    for lam, place in zip(curve.lambdas, places, strict=bool(curve.lambdas)):
        if lam > 0 and not any((np.abs(place - other) < _CLOSE).all() for other in written):
            written.append(place)
            axes.annotate(f"λ = {lam:g}", tuple(place), color=curve.color, **style)


def draw_violins(study: Study, base: str, runs: Runs) -> Figure | None:
    """Each text's median divergence over variants of a base; None if it is undefined for all."""
    rows = violin_rows(study, base, runs)
    if not rows:
        return None
    figure = violins_by_max_attention(rows, JS, _JS_LABEL, (-0.05, 0.73), study.classes)
    figure.axes[0].set_ylabel("Maximum attention weight of the base")
    return figure


def violin_rows(study: Study, base: str, runs: Runs) -> Rows:
    """Columns of what `draw_violins` draws, each (R,); empty without a text that all runs measured."""
    base_runs = study.finished("base", base=base)
    if not (len(runs) and len(base_runs)):
        return {}
    measured = study.measures.loc[list(runs.index)].unstack("run")
    columns = {
        "prediction": study.measures.loc[base_runs.index[0], "prediction"],
        "max_attention": measured["base_max_attention"].iloc[:, 0],
        JS: measured[JS].median(axis=1, skipna=False),
    }
    texts = pd.DataFrame(columns).dropna().query("prediction >= 0")
    return {name: texts[name].to_numpy() for name in columns if len(texts)}


def draw_guides(estimates: Estimates) -> Figure | None:
    """Quality by guide, a panel for each context; None if no guided model is finished.

    Each row shows a guide's seeds and their mean with its interval.
    """
    study, quality, by_context = estimates.study, estimates.study.quality, {}
    for context, by_guide in groups.guides(study).items():
        if finished := {guide: runs for guide, runs in by_guide.items() if len(runs)}:
            by_context[context] = finished
    if not by_context:
        return None
    sizes = [len(by_guide) for by_guide in by_context.values()]
    height = 0.27 * sum(sizes) + 0.62 * len(sizes) + 0.55
    shared: dict[str, Any] = {"sharex": True, "height_ratios": [size + 0.6 for size in sizes]}
    named, style_names = groups.named_groups(study), {TRAINED: SEEDS, UNIFORM: UNIFORM}
    bands = [
        series.Series(estimates, name, *series.STYLES[style], [named[name]])
        for name, style in style_names.items()
    ]
    with series.panels(height, len(sizes), names=2, **shared) as (figure, panels):
        for axes, (context, by_guide) in zip(panels, by_context.items(), strict=True):
            axes.grid(visible=False, axis="y")
            for band in bands:
                band.draw_band(axes, quality, across=True)
            for row, runs in enumerate(by_guide.values()):
                values, mean = estimates.per_seed(runs, quality), estimates.estimate(runs, quality)
                style: dict[str, Any] = {"color": INK, "alpha": 0.5, "ms": 3, "mew": 0, "zorder": 5}
                axes.plot(values, np.full(len(values), row + 0.24), "o", **style)
                style = {"color": PALETTE[0], "mec": "white", "mew": 0.8}
                axes.plot([mean.low, mean.high], [row, row], "-", lw=1.8, zorder=4, **style)
                axes.plot(mean.mean, row, "o", ms=5.5, zorder=6, **style)
            names = [groups.guide_name(study, guide, "of") for guide in by_guide]
            axes.set_yticks(range(len(names)), [name.partition(" within")[0] for name in names])
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=6)
            name = groups.guided_name(study, context).partition(" ")[2]
            axes.set_title(capital(name), loc="left", pad=6)
        panels[-1].set_xlabel(capital(study.words.quality))
    return figure


def draw_removals(estimates: Estimates, curves: Mapping[str, Mapping[float, Runs]]) -> Figure:
    """Accuracy by share of removed words, with a curve of each method."""
    styles = zip(cycle(PALETTE), "osD^vPX<>", strict=False)
    with series.panels(3.6, 1, names=2) as (figure, (axes,)):
        for (method, path), (color, marker) in zip(curves.items(), styles, strict=False):
            x = [100 * share for share in path]
            means = np.array([estimates.estimate(runs, ACCURACY)[:4] for runs in path.values()])
            color, dashes = (INK, "--") if method == "random" else (color, "-")
            axes.fill_between(x, means[:, 2], means[:, 3], color=color, alpha=0.13, lw=0)
            style: dict[str, Any] = {"color": color, "marker": marker, "mec": "white", "ls": dashes}
            axes.plot(x, means[:, 0], label=method_words(method), **style)
        axes.set(xlabel="Words removed from each text (%)", ylabel="Accuracy after retraining")
    return figure


def draw_outcome(estimates: Estimates, base: str, term: str) -> Figure:
    """Quality and TVD of the adversaries of a base and attention term, against lambda."""
    study, curves = estimates.study, series.series_of_base(estimates, base)
    with series.panels(5.6, 2) as (figure, (above, below)):
        for axes, measure in ((above, study.quality), (below, TVD)):
            for curve in (curves[name] for name in series.STYLES if name in curves):
                curve.draw_band(axes, measure)
            curves[term].draw(axes, "lam", measure, names=_EACH)
            series.lambda_axis(axes, curves[term].lambdas, named=axes is below)
        below.set(xlabel=series.LAMBDA, ylabel="TVD from the base")
        above.set_ylabel(capital(study.words.quality))
    return figure


def draw_heads(estimates: Estimates, base: str, term: str) -> Figure | None:
    """JS of each head against lambda, one panel per head; None if the study has no heads."""
    curves, measures = series.series_of_base(estimates, base), estimates.heads
    if not measures:
        return None
    columns = min(2, len(measures))
    rows = -(-len(measures) // columns)
    with series.panels(1.75 * rows + 0.9, rows, columns, names=4, sharey=True) as (figure, panels):
        for axes in panels[len(measures) :]:
            axes.set_visible(False)
        for head, (axes, measure) in enumerate(zip(panels, measures, strict=False)):
            for other in (name for name in measures if name != measure):
                points = curves[term].means("lam", other)
                axes.plot(*points, "-", color=POOLED, alpha=0.5, lw=1.1, zorder=3)
            if SEEDS in curves:
                curves[SEEDS].draw_band(axes, measure)
            curves[term].draw(axes, "lam", measure, names=_EACH)
            last = head + columns >= len(measures)
            series.lambda_axis(axes, curves[term].lambdas, named=last)
            axes.set_title(f"head {head}", loc="left")
            axes.set_xlabel("λ" if last else "")
        figure.supylabel("JS from the base's head (nats)", fontsize=10, color=INK)
    return figure


def draw_ranking(
    estimates: Estimates, base: str, term: str, changepoint: changepoints.Changepoint
) -> Figure | None:
    """Tau against lambda, and against JS with the loss's changepoint; None if tau is undefined."""
    curves = series.series_of_base(estimates, base)
    if np.isnan(curves[term].means("lam", TAU)[1]).all():
        return None
    with series.panels(5.7, 2, sharey=True) as (figure, (above, below)):
        for axes, x, mean in ((above, "lam", 5), (below, JS, 0)):
            for curve in (curves[name] for name in (SEEDS, CONTROL) if name in curves):
                curve.draw_band(axes, TAU)
            curves[term].draw(axes, x, TAU, mean=mean, names=_EACH)
            axes.set_ylabel("Tau with the base")
        series.lambda_axis(above, curves[term].lambdas)
        above.set_xlabel(series.LAMBDA)
        below.set_xlabel(_MEAN_JS)
        if changepoint.fits is None or not changepoint.sides:
            return figure
        place, (low, high) = changepoint.fits.preferred.place, below.get_xlim()
        below.axvline(place, color=MUTED, lw=1.0, ls=":", zorder=2)
        for ends, runs in zip(((low, place), (place, high)), changepoint.sides, strict=True):
            tau = estimates.estimate(runs, TAU).mean
            below.plot(ends, [tau, tau], color=MUTED, lw=1.1, zorder=4)
        below.set_xlim(low, high)
        left = place > (low + high) / 2  # the label goes on the side with more room
        style: dict[str, Any] = {"xytext": (-4, -1), "ha": "right"} if left else {"xytext": (4, -1)}
        style |= {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
        name = f"{changepoint.shape} at {number(place)}"
        below.annotate(name, (place, 1), fontsize=9, color=MUTED, **style)
    return figure


def draw_tradeoff(
    estimates: Estimates,
    base: str,
    published: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
) -> Figure:
    """Both losses against JS with a fitted line, kink and jump, the one of least BIC in front.

    The loss against gold labels is also drawn against KL per element, if the study has it.
    `published` are curves to draw with the latter, by name: pairs of KL per element and loss.
    """
    curves = series.series_of_base(estimates, base)
    sizes = {CONTROL: (5, 0), SEEDS: (0, 7), UNIFORM: (0, 7)}  # of runs and of their mean
    drawn = [(JS, loss) for loss in changepoints.LOSSES]
    drawn += [(KL_ELEMENTS, NLL_GOLD)] * (KL_ELEMENTS in estimates.measures)
    with series.panels(3.0 * len(drawn), len(drawn)) as (figure, panels):
        for axes, (across, measure) in zip(panels, drawn, strict=True):
            for group, curve in curves.items():
                above = [g for g, lam in zip(curve.groups, curve.lambdas, strict=False) if lam > 0]
                run, mean = sizes.get(group, (3.6, 0))
                visible = curve._replace(groups=above or curve.groups)
                visible.draw(axes, across, measure, run=run, mean=mean)
            axes.set_ylabel(f"NLL of {changepoints.LOSSES[measure]} (nats)")
            if across == KL_ELEMENTS:
                axes.set_xlabel(_MEAN_KL)
                style: dict[str, Any] = {"color": INK, "ms": 5, "lw": 0.8, "zorder": 6}
                lines = [axes.plot(*np.transpose(p), "P-", **style)[0] for p in published.values()]
                if published:
                    axes.legend(lines, published, loc="upper left")
                continue
            changepoint = changepoints.find_changepoint(estimates, base, measure)
            if changepoint.fits is not None:
                _draw_fits(axes, changepoint.fits, *changepoint.runs["js"].agg(["min", "max"]))
        panels[0].sharex(panels[1])
        panels[0].tick_params(labelbottom=False)
        panels[0].set_title(_POS.get(estimates.study.facts["pos"], ""), loc="left")
        panels[1].set_xlabel(_MEAN_JS)
    return figure


def _draw_fits(axes: Axes, fits: Segments, low: float, high: float) -> None:
    """Draw the fitted shapes with their own legend."""
    lines = {}
    for fit in fits:
        best = fit is fits.preferred
        bic_note = "least BIC" if best else f"BIC +{fit.bic - fits.preferred.bic:.1f}"
        where = "" if fit.shape == "line" else f" at {number(fit.place)}"
        style: dict[str, Any] = {"color": INK if best else MUTED, "lw": 1.6 if best else 1.1}
        x = np.array([low, high] if fit.shape == "line" else [low, *[fit.place] * 3, high])
        y = fit.at(x)
        if fit.shape == "jump":
            y[2:4] = np.nan, y[2] + fit.change  # broken at the jump
        (line,) = axes.plot(x, y, zorder=4, ls=_LINES[fit.shape], **style)
        lines[f"{fit.shape}{where}, {bic_note}"] = line
    axes.legend(lines.values(), lines, loc="upper left", handlelength=2.6)
