"""The scatter plots and contingency tables of Serrano & Smith for erasing one item."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures.erasure import PAIRS, SCORES, WORDS
from attnlight.figures.style import MUTED, Group, canvas, link_points, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells, percent, probability
from attnlight.figures.violins import links_of
from attnlight.statistics.paired import holm, mcnemar

Values = NDArray[np.float64]

_BINS, _PER_BIN, _BARS = 100, 10, 20


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Scatter of the differences, and histogram of the negative ones, for each ranking."""
    names = [f"delta_{measure}_drawn_{score}" for measure in ("weight", "js") for score in SCORES]
    columns = np.stack([rows[name] for name in names]).astype(np.float64)
    defined = ~np.isnan(columns).any(axis=0)
    weights, js = columns[:, defined].reshape(2, len(SCORES), -1)
    groups = predicted_groups(rows["prediction"][defined], classes)
    links = links_of(rows)[defined]
    across, upward = _ends(weights, 0.05), _ends(js, 0.002)
    step = (across[1] - across[0]) / _BARS
    edges = step * np.arange(np.floor(across[0] / step), np.ceil(across[1] / step) + 1)
    # The vertical axis is linear up to a hundredth of the largest size or somewhat less.
    linear = 10.0 ** np.floor(np.log10(np.abs(upward).max()) - 2)
    with canvas(6.6, groups) as figure:
        panels = figure.subplots(len(SCORES), 2, sharex=True, width_ratios=(1.6, 1))
        for (left, right), x, y, score in zip(panels, weights, js, SCORES, strict=True):
            draw_differences(left, x, y, groups)
            link_points(left, x, y, links)
            # Most differences are far smaller than the largest.
            left.set_yscale("symlog", linthresh=linear, linscale=0.5)
            # A margin of a linear axis is too narrow on a logarithmic one.
            left.set(xlim=across, ylim=[1.4 * end for end in upward], ylabel="Δ JS (nats)")
            ticks = linear * np.array([-100, -1, 0, 1, 100])
            left.set_yticks(ticks[(ticks >= upward[0]) & (ticks <= upward[1])])
            left.yaxis.set_major_formatter("{x:g}")
            left.minorticks_off()
            left.set_title(f"by {WORDS[score]}", loc="left")
            below = [x[(y < 0) & group.members] for group in groups]
            colors = [group.color for group in groups]
            right.hist(below, bins=edges.tolist(), stacked=True, color=colors)  # one edge is 0
            right.set_ylabel("texts")
            right.set_ylim(0, max(right.get_ylim()[1], 1))  # also where no text is below zero
            right.locator_params(axis="y", integer=True)
        panels[-1, 0].set_xlabel("Δ attention")
        panels[-1, 1].set_xlabel("Δ attention, Δ JS < 0")
        panels[-1, 1].locator_params(axis="x", nbins=4)  # shared by both columns
    return figure


def draw_differences(axes: Axes, x: Values, y: Values, groups: Sequence[Group]) -> None:
    """Draw a sample of differences of attention (n,) and of JS (n,), with the share of JS below 0."""
    chosen = sample(x)
    for group in groups:
        shown = chosen[group.members[chosen]]
        axes.plot(x[shown], y[shown], "o", ms=2.2, mew=0, alpha=0.6, color=group.color)
    axes.axhline(0, color=MUTED, linewidth=0.8, zorder=0)
    summary = f"{100 * np.mean(y < 0):.1f} % below 0\n" if len(y) else ""
    summary += f"n = {len(y):,}"
    axes.text(0.03, 0.95, summary, transform=axes.transAxes, va="top", fontsize=8)


def _ends(values: Values, least: float) -> tuple[float, float]:
    """Limits of an axis that covers all values and 0 and is at least `least` wide."""
    low, high = values.min(initial=0), values.max(initial=0)
    margin = 0.04 * max(high - low, least)
    return low - margin, max(high, low + least) + margin


def sample(x: Values) -> NDArray[np.intp]:
    """Positions of at most ten values in each hundredth of their range, without replacement."""
    if not len(x):
        return np.empty(0, dtype=np.intp)
    edges = np.linspace(x.min(), x.max(), _BINS + 1)
    order = np.random.default_rng(0).permutation(len(x))
    order = order[np.argsort(np.digitize(x[order], edges[1:-1]), kind="stable")]
    bins = np.digitize(x[order], edges[1:-1])
    within = np.arange(len(x)) - np.searchsorted(bins, bins)
    return np.sort(order[within < _PER_BIN])


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Contingency of flips, movement of predictions, and comparison of the rankings' top items."""
    others = {"drawn": "one drawn", "released": "released draw", "expected": "mean over others"}
    released = " The released draw is never the first item, and now and then the top one itself."
    if f"flip_other_released_{SCORES[0]}" not in rows:
        released = ""
        del others["released"]
    contingency, movement, first_items = [], [], []
    tests = [mcnemar(rows[f"flip_top_{s}"], rows[f"flip_other_drawn_{s}"]) for s in SCORES]
    for score, p in zip(SCORES, holm([test.p_value for test in tests]), strict=True):
        top = rows[f"flip_top_{score}"]
        for kind, words in others.items():
            other = rows[f"flip_other_{kind}_{score}"]
            products = [top * other, top * (1 - other), (1 - top) * other, (1 - top) * (1 - other)]
            shown = probability(p) if kind == "drawn" else ""
            contingency.append([f"{WORDS[score]}, {words}", *mean_cells(products, rows), shown])
        drawn = rows[f"delta_js_drawn_{score}"]
        names = ("delta_weight_expected", "delta_js_expected", "outdone_expected")
        below = np.where(np.isnan(drawn), np.nan, drawn < 0)
        columns = [*(rows[f"{name}_{score}"] for name in names), below]
        cells = mean_cells(columns, rows, [estimate, estimate, percent, percent])
        movement.append([WORDS[score], *cells])
    tests = [mcnemar(*(rows[f"flip_top_{name}"] for name in pair)) for pair in PAIRS]
    for (first, second), p in zip(PAIRS, holm([test.p_value for test in tests]), strict=True):
        by_first, by_second = rows[f"flip_top_{first}"], rows[f"flip_top_{second}"]
        cells = mean_cells([by_first, by_second, by_first - by_second], rows)
        first_items.append([f"{WORDS[first]} : {WORDS[second]}", *cells, probability(p)])
    return [
        ("contingency", contingency, {"released": released}),
        ("movement", movement, {}),
        ("first_items", first_items, {}),
    ]
