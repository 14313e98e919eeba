"""The box plots of Serrano & Smith for erasing a ranking from the top, beside the least that flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.report import erasure
from attnlight.report.erasure import ALL, ORDERS, PAIRS, WORDS, Rows
from attnlight.report.style import GRID, INK, MUTED, POOLED, Group, canvas, predicted_groups
from attnlight.report.tables import (
    Table,
    class_name,
    estimate,
    number,
    percent,
    probability,
    shares,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How much must be erased before the decision flips?"
SOURCE = "Serrano & Smith (2019), section 5; the minimum is exact for one head"
_IN_WORDS = {
    "removed_fraction": "share of the items erased when the decision flips",
    "removed_mass": "share of attention erased when the decision flips",
    "needs_all": "share of flips that come only when no attention is left",
    "never_flips": "share of decisions that no erasure by this ranking changes",
}
MEASURES = {
    f"{measure}_{name}": f"{words}; by {WORDS[name]}"
    for measure, words in _IN_WORDS.items()
    for name in (*ALL, "random")
} | {
    "minimal_count": "fewest items whose erasure flips the decision (an upper bound for several "
    "heads)",
    **{
        f"excess_{name}": f"items erased beyond the fewest; by {WORDS[name]}"
        for name in (*ORDERS[:3], "random")
    },
}
COLUMNS = (*MEASURES, *(f"removed_count_{name}" for name in ORDERS), "length")
CAPTION = (
    "Items are erased from the top of a ranking, and what is left of attention is renormalised, "
    "until the decision changes. Top: the share of items and of attention gone by then; the minimum "
    "is the smallest set that changes the decision. Bottom: items beyond that minimum, and how "
    "often no erasure by a ranking changes the decision, by predicted class. Boxes are quartiles, "
    "whiskers reach to the last text within 1.5 interquartile ranges, dots are means; they are over "
    "the texts of several items that every ranking flips (their number is in the title), random is "
    "the first random order. After Serrano & Smith (2019), section 5."
)
_COMPARED = (*PAIRS, *((name, "random_first") for name in ORDERS[:3]))


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Boxes of what each ranking removes and of its excess, and how often it never flips."""
    names = erasure.known(rows)[::-1]
    groups = predicted_groups(rows["prediction"], classes)
    kept, among = int(erasure.flipped_by_all(rows).sum()), int(erasure.several_items(rows).sum())
    with canvas(5.6, groups) as figure:
        (fraction, mass), (excess, never) = figure.subplots(2, 2, sharey=True)
        for axes, measure in ((fraction, "removed_fraction"), (mass, "removed_mass")):
            _boxes(axes, [erasure.removed(rows, measure, name) for name in names])
            axes.set_xlim(-0.03, 1.03)
        fraction.set_xlabel("items removed (share)")
        mass.set_xlabel("attention removed (share)")
        _excess(excess, rows, names)
        _never(never, rows, names, groups)
        fraction.set_yticks(range(len(names)), [WORDS[name] for name in names])
        fraction.set_ylim(-0.6, len(names) - 0.4)
        for axes in (mass, never):
            axes.tick_params(axis="y", length=0)
        share = f" ({100 * kept / among:.1f} %)" if among else ""
        fraction.set_title(f"flipped by all: {kept:,} of {among:,} texts{share}", loc="left")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[Table]:
    """What is removed, which ranking flips sooner, who never flips, excess over the minimum."""
    found = [_removal(rows), _comparisons(rows), _never_by_class(rows, classes)]
    return [*found, _excess_table(rows)] if "minimal" in erasure.known(rows) else found


def _boxes(axes: Axes, columns: Sequence[NDArray[np.float64]]) -> None:
    """Lying boxes, one above the other, of what is defined."""
    from matplotlib.cbook import boxplot_stats

    for place, column in enumerate(columns):
        defined = column[~np.isnan(column)]
        if not len(defined):
            continue
        (box,) = boxplot_stats(defined)
        low, first, third, high = (box[name] for name in ("whislo", "q1", "q3", "whishi"))
        axes.hlines(place, low, first, color=INK, linewidth=0.8)
        axes.hlines(place, third, high, color=INK, linewidth=0.8)
        axes.vlines([low, high], place - 0.14, place + 0.14, color=INK, linewidth=0.8)
        axes.barh(place, third - first, 0.56, first, color=GRID, edgecolor=INK, linewidth=0.8)
        axes.vlines(box["med"], place - 0.28, place + 0.28, color=INK, linewidth=1.8)
        axes.plot(box["mean"], place, "o", color=INK, ms=4)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _excess(axes: Axes, rows: Rows, names: Sequence[str]) -> None:
    """Boxes of items beyond the minimum, on an axis that is logarithmic above 1."""
    axes.set_xlabel("items beyond the minimum")
    if "minimal" not in names:
        axes.text(0.5, 0.5, "minimum unknown", transform=axes.transAxes, ha="center", color=MUTED)
        return
    _boxes(axes, [erasure.beyond_minimum(rows, name) for name in names])
    axes.set_xscale("symlog", linthresh=1)
    most = axes.get_xlim()[1]
    ticks = [0, *(10**power for power in range(6) if 10**power <= max(most, 1))]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlim(-0.1, max(most, 1.1))


def _never(axes: Axes, rows: Rows, names: Sequence[str], groups: Sequence[Group]) -> None:
    """How often each ranking never flips, a dot for each predicted class and one for all."""
    everything = np.ones(len(rows["length"]), dtype=bool)
    marks = [(group.members, group.color, "o", 6, 0.6) for group in groups]
    for place, name in enumerate(names):
        never = erasure.never_flips(rows, name)
        for members, color, marker, size, edge in (*marks, (everything, POOLED, "|", 12, 1.5)):
            defined = never[members & ~np.isnan(never)]
            if len(defined):
                axes.plot(defined.mean(), place, marker, color=color, ms=size, mew=edge)
    axes.set_xlabel("never flips (share)")
    axes.set_xlim(-0.03, 1.03)
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _removal(rows: Rows) -> Table:
    lines = []
    for name in erasure.known(rows):
        measures = ("removed_fraction", "removed_mass", "needs_all")
        columns = [erasure.removed(rows, measure, name) for measure in measures]
        found = shares([*columns, erasure.never_flips(rows, name)], rows)
        lines.append([WORDS[name], *map(percent, found), f"{found[0].defined:,}"])
    return Table.of(
        "What is removed when the decision flips (%)",
        ["ranking", "items", "attention", "only by the last", "never flips", "n"],
        lines,
        "Means over texts that every ranking flips, with 95 % bootstrap intervals; only by the "
        "last: flips that come only when no attention is left. Texts of one item are left out; "
        "never flips is over all others.",
    )


def _comparisons(rows: Rows) -> Table:
    from attnlight.statistics.paired import holm, paired_wilcoxon, ratio_of_shares

    kept = erasure.flipped_by_all(rows)
    counts = {name: np.where(kept, erasure.steps(rows, name), np.nan) for name in ORDERS}
    tests = [paired_wilcoxon(counts[first], counts[second]) for first, second in _COMPARED]
    lines = []
    for (first, second), p in zip(_COMPARED, holm([t.p_value for t in tests]), strict=True):
        cells = erasure.sooner(rows, first, second)
        found = shares(list(cells.T), rows)
        ratio = ratio_of_shares(cells[:, 0], cells[:, 2], rows["index"])
        name = f"{WORDS[first]} : {WORDS[second]}"
        shown = [*map(percent, found), estimate(ratio), probability(p), f"{found[0].defined:,}"]
        lines.append([name, *shown])
    return Table.of(
        "Which ranking flips the decision with fewer items (%)",
        ["first : second", "first", "as many", "second", "ratio", "p", "n"],
        lines,
        "Shares of texts, and how many times as often the first needs fewer items as the second, "
        "with 95 % bootstrap intervals. A ranking that never flips is the slower one; texts that "
        "neither flips, and those of one item, are left out. p is of Wilcoxon's signed-rank test on "
        f"the items removed in the {int(kept.sum()):,} texts that every ranking flips, corrected "
        "after Holm.",
    )


def _never_by_class(rows: Rows, classes: Sequence[str] | None) -> Table:
    names = erasure.known(rows)
    kept = erasure.several_items(rows)
    lines = []
    for label in [None, *np.unique(rows["prediction"][kept]).tolist()]:
        own = kept if label is None else kept & (rows["prediction"] == label)
        found = shares(
            [np.where(own, erasure.never_flips(rows, name), np.nan) for name in names], rows
        )
        word = "all" if label is None else class_name(label, classes)
        lines.append([word, *map(percent, found), f"{int(own.sum()):,}"])
    return Table.of(
        "Decisions that no erasure changes, by predicted class (%)",
        ["predicted", *(WORDS[name] for name in names), "n"],
        lines,
        "With 95 % bootstrap intervals. With nothing left the decision is the bias's, so that texts "
        "of that class need not flip.",
    )


def _excess_table(rows: Rows) -> Table:
    lines = []
    for name in ORDERS:
        beyond = erasure.beyond_minimum(rows, name)
        defined = beyond[~np.isnan(beyond)]
        mean, none = shares([beyond, np.where(np.isnan(beyond), np.nan, beyond == 0)], rows)
        ends = np.quantile(defined, [0.5, 0.9]) if len(defined) else [np.nan] * 2
        shown = [estimate(mean), *(number(end) for end in ends), percent(none)]
        lines.append([WORDS[name], *shown, f"{mean.defined:,}"])
    return Table.of(
        "Items erased beyond the fewest that flip the decision",
        ["ranking", "mean", "median", "90th percentile", "none beyond (%)", "n"],
        lines,
        "Over texts that every ranking flips, with 95 % bootstrap intervals. The fewest are exact "
        "for one attention head and an upper bound for several. For two classes gradient × attention "  # noqa: RUF001
        "is the order of the minimum up to the bias, so that little lies between them.",
    )
