"""The box plots of Serrano & Smith for erasing items in the order of each ranking."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures import erasure
from attnlight.figures.erasure import ORDERS, PAIRS, SCORES, WORDS
from attnlight.figures.style import GRID, INK, POOLED, canvas, predicted_groups
from attnlight.figures.tables import (
    RecordTable,
    Rows,
    class_name,
    estimate,
    mean_cells,
    number,
    percent,
    probability,
)
from attnlight.statistics.paired import holm, paired_wilcoxon, ratio_of_shares

_COMPARED = (*PAIRS, *((name, "random_first") for name in SCORES))


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Boxes of each ranking's removals and excess over the minimum, and its rate of no flip."""
    names = erasure.recorded_rankings(rows)[::-1]
    groups = predicted_groups(rows["prediction"], classes)
    flipped, total = int(erasure.flipped_by_all(rows).sum()), int((rows["length"] > 1).sum())
    with canvas(5.6, groups) as figure:
        (fraction, mass), below = figure.subplots(2, 2, sharey=True)
        # Empty panels are removed, and the first panel of a row has the labels.
        excess, never = below if "minimal" in names else below[::-1]
        for axes, measure, unit in ((fraction, "fraction", "items"), (mass, "mass", "attention")):
            draw_boxes(axes, [erasure.removed(rows, f"removed_{measure}", name) for name in names])
            axes.set(xlim=(-0.03, 1.03), xlabel=f"{unit} removed (share)")
        excess.set_xlabel("items beyond the minimum")
        if "minimal" in names:
            draw_boxes(excess, [erasure.beyond_minimum(rows, name) for name in names])
            excess.set_xscale("symlog", linthresh=1)
            excess.set_xlim(-0.1, max(excess.get_xlim()[1], 1.1))
            excess.xaxis.set_major_formatter("{x:,.0f}")
        for place, name in enumerate(names):
            flips = erasure.removed(rows, "never_flips", name, "column")
            for _, color, members in groups:
                if not np.isnan(flips[members]).all():
                    never.plot(np.nanmean(flips[members]), place, "o", color=color, ms=6, mew=0.6)
            if not np.isnan(flips).all():
                never.plot(np.nanmean(flips), place, "|", color=POOLED, ms=12, mew=1.5)
        never.set(xlabel="never flips (share)", xlim=(-0.03, 1.03))
        never.grid(axis="x")
        fraction.set_yticks(range(len(names)), [WORDS[name] for name in names])
        fraction.set_ylim(-0.6, len(names) - 0.4)
        for axes in (mass, below[1]):
            axes.tick_params(axis="y", length=0)
        share = f" ({100 * flipped / total:.1f} %)" if total else ""
        fraction.set_title(f"flipped by all: {flipped:,} of {total:,} texts{share}", loc="left")
    return figure


def draw_boxes(axes: Axes, columns: Sequence[NDArray[np.float64]]) -> None:
    """Draw horizontal boxes of the defined values of each column (R,), from the bottom up."""
    for place, column in enumerate(columns):
        defined = column[~np.isnan(column)]
        if not len(defined):
            continue
        (box,) = boxplot_stats(defined)
        low, first, third, high = (box[name] for name in ("whislo", "q1", "q3", "whishi"))
        axes.hlines([place] * 2, [low, third], [first, high], color=INK, linewidth=0.8)
        axes.vlines([low, high], place - 0.14, place + 0.14, color=INK, linewidth=0.8)
        axes.barh(place, third - first, 0.56, first, color=GRID, edgecolor=INK, linewidth=0.8)
        axes.vlines(box["med"], place - 0.28, place + 0.28, color=INK, linewidth=1.8)
        axes.plot(box["mean"], place, "o", color=INK, ms=4)
    axes.grid(axis="x")


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Removals, comparisons of rankings, rates of no flip, and excess over the minimum."""
    names = erasure.recorded_rankings(rows)
    never = {name: erasure.removed(rows, "never_flips", name, "column") for name in names}
    several, flipped = rows["length"] > 1, erasure.flipped_by_all(rows)
    removal, sooner, by_class, excess = [], [], [], []
    for name in names:
        measures = ("removed_fraction", "removed_mass", "needs_all")
        columns = [*(erasure.removed(rows, measure, name) for measure in measures), never[name]]
        removal.append([WORDS[name], *mean_cells(columns, rows)])
    counts = {name: np.where(flipped, erasure.steps(rows, name), np.nan) for name in ORDERS}
    tests = [paired_wilcoxon(counts[first], counts[second]) for first, second in _COMPARED]
    for (first, second), p in zip(_COMPARED, holm([t.p_value for t in tests]), strict=True):
        flips = list(erasure.sooner(rows, first, second).T)
        ratio = ratio_of_shares(flips[0], flips[2], rows["index"])
        cells = [*mean_cells(flips, rows), estimate(ratio), probability(p)]
        sooner.append([f"{WORDS[first]} : {WORDS[second]}", *cells])
    for label in [None, *np.unique(rows["prediction"][several]).tolist()]:
        members = several if label is None else several & (rows["prediction"] == label)
        cells = mean_cells([np.where(members, never[name], np.nan) for name in names], rows)
        by_class.append([class_name(label, classes), *cells])
    for name in ORDERS if "minimal" in names else ():
        beyond = erasure.beyond_minimum(rows, name)
        ends = np.nanquantile(beyond, [0.5, 0.9]) if flipped.any() else [np.nan] * 2
        no_excess = np.where(np.isnan(beyond), np.nan, beyond == 0)
        mean, share, n = mean_cells([beyond, no_excess], rows, [estimate, percent])
        excess.append([WORDS[name], mean, *map(number, ends), share, n])
    result: list[RecordTable] = [
        ("removed", removal, {}),
        ("sooner", sooner, {"flipped": int(flipped.sum())}),
        ("never", by_class, {"head": ["predicted", *(WORDS[name] for name in names), "n"]}),
    ]
    return [*result, ("excess", excess, {})] if excess else result
