"""The scatter plots and contingency tables of Serrano & Smith for erasing one item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.report.erasure import PAIRS, SCORES, WORDS, Rows
from attnlight.report.style import MUTED, Group, canvas, predicted_groups
from attnlight.report.tables import Table, estimate, percent, probability, shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = NDArray[np.float64]

QUESTION = "Does the item that attention puts first matter more than another?"
SOURCE = "Serrano & Smith (2019), section 4"
_IN_WORDS = {
    "flip_top": "share of decisions that change without the top item",
    "flip_other_expected": "share that change without another item, mean over all others",
    "flip_other_drawn": "share that change without another item, one drawn",
    "delta_weight_expected": "attention of the top item less that of another, mean over all others",
    "delta_weight_drawn": "attention of the top item less that of another, one drawn",
    "delta_js_expected": "Jensen-Shannon divergence (nats) of the prediction without the top item "
    "less that without another, mean over all others",
    "delta_js_drawn": "the same less that without another, one drawn (nats)",
    "outdone_expected": "share of the other items without which the prediction moves further",
}
_RELEASED = tuple(
    f"{measure}_compat_{score}"
    for measure in ("flip_other", "delta_weight", "delta_js")
    for score in SCORES
)
MEASURES = {
    f"{measure}_{score}": f"{words}; top by {WORDS[score]}"
    for measure, words in _IN_WORDS.items()
    for score in SCORES
}
COLUMNS = (*MEASURES, *_RELEASED)
CAPTION = (
    "Each text without its top item against the same text without another one, drawn at random, "
    "for three rankings. Left: how much more attention the top item holds, and how much further the "
    "prediction moves without it (difference of Jensen-Shannon divergences); above zero the top "
    "item mattered more. At most ten texts are drawn in each hundredth of the horizontal axis; the "
    "percentage is over all. Right: the same difference of attention, of the texts below zero. "
    "Texts of one item are left out. After Serrano & Smith (2019), section 4.1."
)
_BINS, _PER_BIN, _BARS = 100, 10, 20


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Scatter of the drawn differences, and histogram of those below zero, for each ranking."""
    columns = np.stack(
        [rows[f"delta_{what}_drawn_{score}"] for what in ("weight", "js") for score in SCORES]
    ).astype(np.float64)
    defined = ~np.isnan(columns).any(axis=0)
    weights, js = columns[:, defined].reshape(2, len(SCORES), -1)
    groups = predicted_groups(rows["prediction"][defined], classes)
    across, upward = _ends(weights, 0.05), _ends(js, 0.002)
    step = (across[1] - across[0]) / _BARS
    edges = step * np.arange(np.floor(across[0] / step), np.ceil(across[1] / step) + 1)
    with canvas(6.6, groups) as figure:
        panels = figure.subplots(len(SCORES), 2, sharex=True, width_ratios=(1.6, 1))
        for (left, right), x, y, score in zip(panels, weights, js, SCORES, strict=True):
            _scatter(left, x, y, groups)
            left.set(xlim=across, ylim=upward, ylabel="Δ JS (nats)")
            left.set_title(f"by {WORDS[score]}", loc="left")
            below = [x[(y < 0) & group.members] for group in groups]
            colors = [group.color for group in groups]
            right.hist(below, bins=edges.tolist(), stacked=True, color=colors)  # one edge is 0
            right.set_ylabel("texts")
            right.locator_params(axis="y", integer=True)
        panels[-1, 0].set_xlabel("Δ attention")
        panels[-1, 1].set_xlabel("Δ attention, Δ JS < 0")
        panels[-1, 1].locator_params(axis="x", nbins=4)  # of both columns: they share it
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[Table]:
    """Contingency of flips, how far predictions move, and the rankings' first items compared."""
    return [_contingency(rows), _movement(rows), _first_items(rows)]


def sample(x: Values, seed: int = 0) -> NDArray[np.intp]:
    """Places of at most ten values in each hundredth of their range, without replacement."""
    if not len(x):
        return np.empty(0, dtype=np.intp)
    edges = np.linspace(x.min(), x.max(), _BINS + 1)
    order = np.random.default_rng(seed).permutation(len(x))
    order = order[np.argsort(np.digitize(x[order], edges[1:-1]), kind="stable")]
    bins = np.digitize(x[order], edges[1:-1])
    within = np.arange(len(x)) - np.searchsorted(bins, bins)
    return np.sort(order[within < _PER_BIN])


def _ends(values: Values, least: float) -> tuple[float, float]:
    """Ends of an axis that holds all values and 0, at least so wide."""
    low, high = min(0.0, values.min(initial=0)), max(0.0, values.max(initial=0))
    room = 0.04 * max(high - low, least)
    return low - room, max(high, low + least) + room


def _scatter(axes: Axes, x: Values, y: Values, groups: Sequence[Group]) -> None:
    chosen = sample(x)
    for group in groups:
        own = chosen[group.members[chosen]]
        axes.plot(x[own], y[own], "o", ms=2.2, mew=0, alpha=0.6, color=group.color)
    axes.axhline(0, color=MUTED, linewidth=0.8, zorder=0)
    below = f"{100 * np.mean(y < 0):.1f} % below 0\n" if len(y) else ""
    axes.text(0.03, 0.95, f"{below}n = {len(y):,}", transform=axes.transAxes, va="top", fontsize=8)


def _contingency(rows: Rows) -> Table:
    from attnlight.statistics.paired import contingency, holm, mcnemar

    tests = [mcnemar(rows[f"flip_top_{s}"], rows[f"flip_other_drawn_{s}"]) for s in SCORES]
    released = _RELEASED[0] in rows
    lines = []
    for score, p in zip(SCORES, holm([test.p_value for test in tests]), strict=True):
        top, other = rows[f"flip_top_{score}"], rows[f"flip_other_expected_{score}"]
        draws = [("drawn", "one drawn", probability(p))]
        draws += [("compat", "released draw", "")] * released
        cells = [
            (words, contingency(top, rows[f"flip_other_{draw}_{score}"], rows["index"]), shown)
            for draw, words, shown in draws
        ]
        products = [top * other, top * (1 - other), (1 - top) * other, (1 - top) * (1 - other)]
        for words, found, shown in [*cells, ("mean over others", shares(products, rows), "")]:
            name = f"{WORDS[score]}, {words}"
            lines.append([name, *map(percent, found), f"{found[0].defined:,}", shown])
    note = (
        "Shares of texts with 95 % bootstrap intervals; texts of one item are left out. p is of "
        "McNemar's exact test of the top item against the one drawn, corrected after Holm."
    )
    if released:
        note += " The released draw is never the first item, and now and then the top one itself."
    return Table.of(
        "Decisions that change without the top item, or without another (%)",
        ["top by, other item", "both", "top alone", "other alone", "neither", "n", "p"],
        lines,
        note,
    )


def _movement(rows: Rows) -> Table:
    lines = []
    for score in SCORES:
        drawn = rows[f"delta_js_drawn_{score}"]
        below = np.where(np.isnan(drawn), np.nan, drawn < 0)
        names = ("delta_weight_expected", "delta_js_expected", "outdone_expected")
        weight, js, outdone, negative = shares(
            [*(rows[f"{name}_{score}"] for name in names), below], rows
        )
        found = [estimate(weight), estimate(js), percent(outdone), percent(negative)]
        lines.append([WORDS[score], *found, f"{js.defined:,}"])
    return Table.of(
        "How much more the top item moves the prediction than another",
        ["top by", "Δ attention", "Δ JS (nats)", "others above (%)", "Δ JS < 0, drawn (%)", "n"],
        lines,
        "Means over texts of the mean over all other items, with 95 % bootstrap intervals; others "
        "above: items without which the prediction moves further than without the top one.",
    )


def _first_items(rows: Rows) -> Table:
    from attnlight.statistics.paired import holm, mcnemar, paired_difference

    flips = {score: rows[f"flip_top_{score}"] for score in SCORES}
    tests = [mcnemar(flips[first], flips[second]) for first, second in PAIRS]
    lines = []
    for (first, second), test, p in zip(
        PAIRS, tests, holm([test.p_value for test in tests]), strict=True
    ):
        own = map(percent, shares([flips[first], flips[second]], rows))
        difference = paired_difference(flips[first], flips[second], rows["index"])
        name = f"{WORDS[first]} : {WORDS[second]}"
        lines.append([name, *own, percent(difference), f"{test.n:,}", probability(p)])
    return Table.of(
        "Decisions that change without the top item alone (%)",
        ["first : second", "first", "second", "difference", "n", "p"],
        lines,
        "With 95 % bootstrap intervals; p of McNemar's exact test, corrected after Holm.",
    )
