"""Divergence of attention against change of the prediction: Wiegreffe & Pinter's figure 5."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.estimates import JS, TVD, Estimates
from attnlight.report.study.groups import grid, uniforms
from attnlight.report.study.marks import CONTROL, OTHER_TERM, SEEDS, TERMS, UNIFORM
from attnlight.report.study.reading import Study, StudyRun
from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Mean divergence of attention from {base} against mean change of the prediction, over the test "
    "texts: a small mark for each run, a large one for the mean over its seeds, and a line through "
    "the means of each attention term in order of lambda. Lambda 0 is the imitation control: "
    "trained to predict like the base with no word on its attention, it is the floor of the grid. "
    "Above in the limits of the paper's figure, below the trained runs alone; where two lambdas "
    "would overlap one is not named. The frontier bounds every attention over the base's own frozen "
    "encoder and readout; trained adversaries have an encoder of their own and may lie above it. "
    "After Wiegreffe & Pinter (2019), figure 5."
)
_LIMIT = 0.7  # of both axes in the paper
_CLOSE = (0.13, 0.06)  # names nearer than this, in shares of the axes, would overlap
_REACH = np.array([0.085, 0.04])  # from a mean to the centre of its name, in shares of the axes
_SAID = "The frontier bounds the base's own encoder; adversaries may lie above it"


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
    groups: Sequence[Sequence[StudyRun]]
    names: Sequence[str]


def draw_figure5(study: Study, estimates: Estimates, base: StudyRun) -> Figure | None:
    """Mean JS against mean TVD of all that was trained from a base.

    Returns:
        The figure; None where nothing was.
    """
    every = series(study, base)
    if not every:
        return None
    with styled():
        figure = new_figure(COLUMN_WIDTH, 6.6)
        whole, near = figure.subplots(2, 1)
        for axes in (whole, near):
            _frontier(axes, base)
            for one in every:
                _draw(axes, estimates, one)
            _search(axes, estimates, base)
            _label(axes)
        whole.set(xlim=(-0.01, _LIMIT), ylim=(0, _LIMIT + 0.02))
        if base.frontier is not None:
            whole.set_title(_SAID, fontsize=9)
        _zoom(near, np.concatenate([_points(estimates, one.groups) for one in every]))
        _name(near, estimates, every)
        handles, names = whole.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=2)
    return figure


def series(study: Study, base: StudyRun) -> list[Series]:
    """What there is to draw: adversaries by term, the control, other seeds, uniform attention."""
    cells = [(term, lam, runs) for b, term, lam, runs in grid(study) if b == base and runs]
    control = [runs for _, lam, runs in cells if lam == 0]
    found = []
    for term, own in groupby((c for c in cells if c[1] > 0), key=lambda cell: cell[0] or ""):
        of_term = list(own)
        start = study.controls(base, term or None)
        groups = [start] * bool(start) + [runs for _, _, runs in of_term]
        names = [""] * bool(start) + [f"{lam:g}" for _, lam, _ in of_term]
        color = TERMS.get(term, OTHER_TERM)
        found.append(Series(f"adversary, {term.upper()}, by λ", color, "o", groups, names))
    single = [
        ("imitation control (λ = 0)", CONTROL, "D", [run for runs in control for run in runs]),
        ("other seeds", SEEDS, "s", study.finished("seed", base=base.name)),
        ("uniform attention", UNIFORM, "^", _uniform(study, base)),
    ]
    return found + [
        Series(name, color, marker, [runs], [""]) for name, color, marker, runs in single if runs
    ]


def _uniform(study: Study, base: StudyRun) -> list[StudyRun]:
    return uniforms(study) if base == study.bases[0] else []


def _points(estimates: Estimates, groups: Sequence[Sequence[StudyRun]]) -> NDArray[np.float64]:
    """Mean TVD and JS of each run, (S, 2)."""
    runs = [run for group in groups for run in group]
    return np.stack([estimates.per_seed(runs, measure) for measure in (TVD, JS)], axis=1)


def _means(estimates: Estimates, one: Series) -> NDArray[np.float64]:
    """Mean over seeds of each group, (G, 2)."""
    return np.stack([_points(estimates, [group]).mean(axis=0) for group in one.groups])


def _draw(axes: Axes, estimates: Estimates, one: Series) -> None:
    points, means = _points(estimates, one.groups), _means(estimates, one)
    axes.plot(*points.T, one.marker, ms=3, color=one.color, alpha=0.6, mew=0)
    line = "-" if len(means) > 1 else ""
    style: dict[str, Any] = {"ms": 6, "mfc": one.color, "mec": "white", "mew": 0.8}
    axes.plot(*means.T, one.marker, ls=line, color=one.color, lw=1.2, label=one.name, **style)


def _name(axes: Axes, estimates: Estimates, every: Sequence[Series]) -> None:
    """Write each lambda beside its mean, on the side where it is farthest from all else."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    places = [(_means(estimates, one) - [left, low]) / [right - left, high - low] for one in every]
    occupied = list(np.concatenate(places))
    for one, own in zip(every, places, strict=True):
        named: list[NDArray[np.float64]] = []
        for name, place in zip(one.names, own, strict=True):
            if not name or any((np.abs(place - other) < _CLOSE).all() for other in named):
                continue
            named.append(place)
            side = _side(place, occupied)
            occupied.append(place + side * _REACH)
            axes.annotate(
                f"λ = {name}",
                tuple(place),
                tuple(side * (7, 5)),
                "axes fraction",
                "offset points",
                ha="left" if side[0] > 0 else "right",
                va="bottom" if side[1] > 0 else "top",
                fontsize=8,
                color=one.color,
            )


def _side(
    place: NDArray[np.float64], occupied: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Right or left and above or below, (2,) of 1 and -1, where a name is read best."""
    sides = [np.array([x, y]) for y in (1.0, -1.0) for x in (1.0, -1.0)]

    def room(side: NDArray[np.float64]) -> float:
        centre = place + side * _REACH
        inside = bool(((centre > _REACH) & (centre < 1 - _REACH)).all())
        others = [other for other in occupied if (other != place).any()]
        away = min((float((np.abs(centre - o) / _REACH).max()) for o in others), default=2.0)
        return min(away, 2.0) + 2.0 * inside

    return max(sides, key=room)


def _frontier(axes: Axes, base: StudyRun) -> None:
    if base.frontier is None:
        return
    tvd, js = (np.asarray(values, dtype=np.float64) for values in base.frontier)
    # Flat after its last corner.
    axes.plot(np.r_[tvd, 1.0], np.r_[js, js[-1]], color=MUTED, lw=1.3, label="frontier of the base")


def _search(axes: Axes, estimates: Estimates, base: StudyRun) -> None:
    if not base.finished:
        return
    found = [float(estimates.per_seed([base], f"search_{what}")[0]) for what in ("tvd", "js")]
    if not np.isnan(found).any():
        name = "Jain & Wallace's search"
        axes.plot(*found, "X", ms=8, mfc=INK, mec="white", mew=0.8, ls="", label=name)


def _zoom(axes: Axes, points: NDArray[np.float64]) -> None:
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    margin = np.maximum(0.12 * (high - low), 0.01)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])


def _label(axes: Axes) -> None:
    axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
    axes.set_xlabel("Mean total variation distance from the base's prediction")
    axes.set_ylabel("Mean divergence of attention (nats)")
    axes.grid()
    axes.set_axisbelow(True)
