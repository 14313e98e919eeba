"""The figures of a study, each where the columns that it needs are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study import groups, marks
from attnlight.report.study.estimates import JS, TVD, Estimates
from attnlight.report.study.groups import CONTROL, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.marks import Drawing, Level, dress, legend_above
from attnlight.report.study.path_figures import path_figures
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import capital
from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, PALETTE, new_figure, styled
from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnlight.report.study.frame import Runs, Study

_LIMIT = 0.7  # of both axes of figure 5 in the paper
_CLOSE = (0.13, 0.06)  # names nearer than this, in shares of the axes, would overlap
_JS_LABEL = "Jensen-Shannon divergence from the base's attention (nats)"


def figures(estimates: Estimates) -> Iterator[Drawing]:
    """The figures of a study, each drawn when its turn comes.

    Figure 5 needs what the base's own encoder allows (`worst_js`), its violins the base's largest
    attention weight; without them adversaries are drawn along lambda, and guides side by side.
    """
    study = estimates.study
    if "worst_js" not in study.measures:
        yield from path_figures(estimates)
        made, known = draw_guides(estimates), {"cluster": study.words.cluster}
        if made is not None:
            caption = text("captions", "guides", quality=capital(study.words.quality), **known)
            yield Drawing("Models whose attention is given", "probes", made, caption)
        return
    for base in study.bases:
        made = draw_figure5(estimates, base)
        if made is not None:
            title = f"Divergence against change of the prediction, {base}"
            yield Drawing(title, f"figure5-{base}", made, text("captions", "figure5", base=base))
        for name, stem, runs in _variants(study, base):
            made = draw_violins(study, base, runs)
            if made is not None:
                words = f"{len(runs)} {name}" if len(runs) > 1 else f"one of the {name}"
                caption = text("captions", "violins", base=base, runs=words)
                yield Drawing(f"Divergence of {name} from {base}", f"{stem}-{base}", made, caption)


def _variants(study: Study, base: str) -> Iterator[tuple[str, str, Runs]]:
    yield SEEDS, "seeds", study.finished("seed", base=base)
    if study.selected is not None:
        yield (
            f"adversaries ({groups.words_of(*study.selected)})",
            "adversary",
            groups.chosen(study, base),
        )


class Series(NamedTuple):
    """Groups of runs that share a colour.

    Attributes:
        name: What the legend calls them.
        color: Their colour.
        marker: Their mark.
        groups: The runs of each group, whose means are joined by a line where there are several.
        names: What each group is called beside its mean; empty: nothing.
    """

    name: str
    color: str
    marker: str
    groups: Sequence[Runs]
    names: Sequence[str]


def draw_figure5(estimates: Estimates, base: str) -> Figure | None:
    """Mean JS against mean TVD of all that was trained from a base.

    Returns:
        The figure; None where nothing was.
    """
    every, study = series(estimates.study, base), estimates.study
    if not every:
        return None
    with styled():
        figure = new_figure(COLUMN_WIDTH, 6.6)
        whole, near = figure.subplots(2, 1)
        for axes in (whole, near):
            _draw_bounds(axes, estimates, base)
            points = np.concatenate([_draw_series(axes, estimates, one) for one in every])
            axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
            axes.set_xlabel("Mean total variation distance from the base's prediction")
            axes.set_ylabel("Mean divergence of attention (nats)")
            dress(axes)
        whole.set(xlim=(-0.01, _LIMIT), ylim=(0, _LIMIT + 0.02))
        if study.runs.at[base, "frontier"] is not None:
            said = "The frontier bounds the base's own encoder; adversaries may lie above it"
            whole.set_title(said, fontsize=9)
        low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
        margin = np.maximum(0.12 * (high - low), 0.01)
        (left, bottom), (right, top) = low - margin, high + margin
        near.set(xlim=(left, right), ylim=(bottom, top))
        for k, one in enumerate(every):
            _name_lambdas(near, estimates, one, above=k % 2 == 0)
        legend_above(figure, whole, columns=2)
    return figure


def series(study: Study, base: str) -> list[Series]:
    """What there is to draw: adversaries by term, the control, other seeds, uniform attention."""
    every = [cell for cell in groups.cells(study, base) if len(cell.runs)]
    found = []
    for term, own in groupby([c for c in every if c.lam > 0], key=lambda cell: cell.term or ""):
        of_term, start = list(own), study.controls(base, term or None)
        runs = [start] * bool(len(start)) + [cell.runs for cell in of_term]
        names = [""] * bool(len(start)) + [f"{cell.lam:g}" for cell in of_term]
        name = f"adversary, {term.upper()}, by λ"
        found.append(Series(name, marks.color_of(term), "o", runs, names))
    called = {CONTROL: "imitation control (λ = 0)", marks.UNIFORM: UNIFORM}
    for level in reversed(marks.levels(study, base)):
        look = marks.COLORS[level.name], marks.MARKERS[level.name]
        found.append(Series(called.get(level.name, level.name), *look, [level.runs], [""]))
    return found


def _points(estimates: Estimates, runs: Runs) -> NDArray[np.float64]:
    """Mean TVD and JS of each run, (S, 2)."""
    return np.stack([estimates.per_seed(runs, measure) for measure in (TVD, JS)], axis=1)


def _means(estimates: Estimates, one: Series) -> NDArray[np.float64]:
    """Mean over seeds of each group, (G, 2)."""
    return np.stack([_points(estimates, group).mean(axis=0) for group in one.groups])


def _draw_series(axes: Axes, estimates: Estimates, one: Series) -> NDArray[np.float64]:
    """Draw the runs of a series and their means, and return the runs, (S, 2)."""
    points = np.concatenate([_points(estimates, group) for group in one.groups])
    means = _means(estimates, one)
    style: dict[str, Any] = {"color": one.color, "marker": one.marker}
    axes.plot(*points.T, ms=3, alpha=0.6, mew=0, ls="", **style)
    style |= {"ms": 6, "mec": "white", "mew": 0.8, "lw": 1.2, "label": one.name}
    axes.plot(*means.T, ls="-" if len(means) > 1 else "", **style)
    return points


def _name_lambdas(axes: Axes, estimates: Estimates, one: Series, above: bool) -> None:
    """Write each lambda beside its mean, unless it would overlap the one before."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    places = (_means(estimates, one) - [left, low]) / [right - left, high - low]
    named: list[NDArray[np.float64]] = []
    for name, place in zip(one.names, places, strict=True):
        if name and not any((np.abs(place - other) < _CLOSE).all() for other in named):
            named.append(place)
            side = {"ha": "right", "va": "bottom"} if above else {"ha": "left", "va": "top"}
            at = (-7, 5) if above else (7, -5)
            style: dict[str, Any] = {"fontsize": 8, "color": one.color, **side}
            axes.annotate(
                f"λ = {name}", tuple(place), at, "axes fraction", "offset points", **style
            )


def _draw_bounds(axes: Axes, estimates: Estimates, base: str) -> None:
    """What attention over the base's own encoder can reach, exactly and as a search finds it."""
    corners = estimates.study.runs.at[base, "frontier"]
    if corners is not None:
        tvd, js = (np.asarray(values, dtype=np.float64) for values in corners)
        x, y = np.r_[tvd, 1.0], np.r_[js, js[-1]]  # flat after its last corner
        axes.plot(x, y, color=MUTED, lw=1.3, label="frontier of the base")
    own = estimates.study.itself(base)
    found = [estimates.per_seed(own, f"search_{what}") for what in ("tvd", "js")]
    if len(own) and not np.isnan(found).any():
        style: dict[str, Any] = {"ms": 8, "mfc": INK, "mec": "white", "mew": 0.8, "ls": ""}
        axes.plot(*found, "X", label="Jain & Wallace's search", **style)


def draw_violins(study: Study, base: str, runs: Runs) -> Figure | None:
    """Each text's median divergence over some variants of a base.

    Returns:
        The figure; None where the base or every variant is unfinished, or nothing is defined.
    """
    own = study.itself(base)
    if not (len(runs) and len(own)):
        return None
    js, attention = (study.values(runs, name) for name in (JS, "base_max_attention"))
    prediction = study.values(own, "prediction")[0]
    kept = (prediction >= 0) & ~np.isnan(js).any(axis=0) & ~np.isnan(attention[0])
    if not kept.any():
        return None
    rows = {
        "prediction": prediction[kept],
        "max_attention": attention[0][kept],
        JS: np.median(js[:, kept], axis=0),
    }
    figure = violins_by_max_attention(rows, JS, _JS_LABEL, (-0.05, 0.73), study.classes)
    figure.axes[0].set_ylabel("Maximum attention weight of the base")
    return figure


def draw_guides(estimates: Estimates) -> Figure | None:
    """Quality by guide, a panel for each context; None where no guided model is finished."""
    study = estimates.study
    found = {
        c: {n: g for n, g in groups.guides(study, c).items() if len(g)}
        for c in groups.contexts(study)
    }
    found = {context: by_guide for context, by_guide in found.items() if by_guide}
    if not found:
        return None
    rows = [len(by_guide) for by_guide in found.values()]
    bands = (
        Level(SEEDS, study.architecture(study.bases[0])),
        Level(marks.UNIFORM, groups.uniforms(study)),
    )
    with styled():
        figure = new_figure(COLUMN_WIDTH, 0.27 * sum(rows) + 0.62 * len(rows) + 0.55)
        ratios = [count + 0.6 for count in rows]
        panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=ratios)
        for axes, (context, by_guide) in zip(panels.flat, found.items(), strict=True):
            shown = [level for level in bands if len(level.runs)]
            marks.draw_bands(axes, estimates, shown, study.quality, across=True)
            _draw_guides(axes, estimates, by_guide)
            name = groups.reader(study, context).partition(" ")[2]
            axes.set_title(capital(name), loc="left", pad=6)
        panels[-1, 0].set_xlabel(capital(study.words.quality))
        names = {SEEDS: TRAINED, marks.UNIFORM: UNIFORM}
        legend_above(figure, panels[0, 0], columns=2, names=names)
    return figure


def _draw_guides(axes: Axes, estimates: Estimates, by_guide: dict[str, Runs]) -> None:
    """A row for each guide: its seeds, and their mean with its interval."""
    study = estimates.study
    for row, runs in enumerate(by_guide.values()):
        values = estimates.per_seed(runs, study.quality)
        found = estimates.of(runs, study.quality)
        axes.plot(values, np.full(len(values), row + 0.24), color=INK, alpha=0.5, **marks.POINT)
        axes.plot([found.low, found.high], [row, row], "-", color=PALETTE[0], lw=1.8, zorder=4)
        axes.plot(found.mean, row, color=PALETTE[0], **marks.MEAN | {"ms": 5.5})
    names = [groups.owned(study, guide).partition(" within")[0] for guide in by_guide]
    axes.set_yticks(range(len(by_guide)), names)
    axes.set_ylim(len(by_guide) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=6)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
