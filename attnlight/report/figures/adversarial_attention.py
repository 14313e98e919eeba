"""The histogram and violins of Jain & Wallace for adversarial attention, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.style import INK, MUTED, Group, canvas, predicted_groups
from attnlight.report.tables import Table, estimate, number, percent, shares
from attnlight.report.violins import bins_height, draw_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Mapping[str, NDArray[Any]]

QUESTION = "Can a very different attention give the same prediction?"
SOURCE = "Jain & Wallace (2019), section 4.2.2; solved exactly for two classes"
_NOT_ALONE = (
    "Never let it stand alone: an attention that is faithful but redundant, such as over ten words "
    "that all carry the signal, fails it."
)
MEASURES = {
    "worst_js": "largest Jensen-Shannon divergence (nats, 0 to 0.693) from the own attention among "
    "attentions that keep the prediction to epsilon; read it beside worst_share",
    "worst_share": "worst_js as a share of the largest that any attention on the text can have "
    "(0 to 1): near 1, keeping the prediction constrains attention hardly at all",
    "worst_tvd": "how far that attention moves the prediction: total variation distance (0 to 1)",
    "upper_js": "what no attention that keeps the prediction exceeds (nats); worst_js itself for "
    "two classes",
    "search_js": "divergence that Jain & Wallace's gradient search finds at the same epsilon (nats)",
    "search_tvd": "how far that one moves the prediction: total variation distance (0 to 1)",
    "search_gap": "worst_js less search_js on the texts searched (nats)",
}
COLUMNS = (*MEASURES, "frontier_js")
CAPTION = (
    "Top: how different an attention can be that leaves the prediction in place: the largest "
    "Jensen-Shannon divergence from the model's own, each predicted class adding up to 1; where the "
    "record has it, dashed, what Jain & Wallace's search finds. The number above is the mean of "
    f"its share of the largest divergence that any attention on the text can have. {_NOT_ALONE} "
    "Then the same by the largest attention weight of the text; solid lines are medians, dotted "
    "lines quartiles, fewer than five texts are drawn as points. Where the record has it, the "
    "frontier: no attention over this encoder and readout has a larger mean divergence at the same "
    "mean change of the prediction; models with another encoder, trained adversaries among them, "
    "may lie above it. After the figures of Jain & Wallace (2019) and Wiegreffe & Pinter (2019)."
)
_BINS, _RANGE = 40, (0.0, 0.7)
_LIMITS = (-0.05, 0.7)
_VERY_DIFFERENT = 0.6
_POINTS = 200
_DIVERGENCE = "Largest divergence of attention (nats)"


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Histogram and violins of the largest divergence, and the frontier where the record has it."""
    if not _any(rows, "worst_js"):
        return None
    defined = ~np.isnan(rows["worst_js"])
    kept = {name: values[defined] for name, values in rows.items()}
    groups = predicted_groups(kept["prediction"], classes)
    with_frontier = _any(kept, "frontier_js")
    heights = [2.5, bins_height(groups)] + [2.8] * with_frontier
    with canvas(sum(heights), groups) as figure:
        panels = figure.subplots(len(heights), 1, height_ratios=heights)
        _histogram(panels[0], kept, groups)
        draw_bins(panels[1], kept["worst_js"], kept["max_attention"], groups, _DIVERGENCE, _LIMITS)
        if with_frontier:
            _frontier(panels[2], kept)
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[Table]:
    """The largest divergence with its share, and the search against it on the same texts."""
    groups = predicted_groups(rows["prediction"], classes)
    everything = Group("all", INK, np.ones(len(rows["prediction"]), dtype=bool))
    js, searched = rows["worst_js"].astype(np.float64), _any(rows, "search_js")
    far = np.where(np.isnan(js), np.nan, js > _VERY_DIFFERENT)
    columns = [js, rows["worst_share"], rows["upper_js"], far]
    if searched:
        exact = np.where(np.isnan(rows["search_js"]), np.nan, js)
        columns += [exact, *(rows[f"search_{name}"] for name in ("js", "gap", "tvd"))]
    worst, by_search = [], []
    for name, _, members in [everything, *groups] if len(groups) > 1 else [everything]:
        found = shares([np.where(members, column, np.nan) for column in columns], rows)
        own, share, upper = map(estimate, found[:3])
        worst.append([name, own, share, percent(found[3]), upper, f"{found[0].defined:,}"])
        if searched:
            by_search.append([name, *map(estimate, found[4:]), f"{found[5].defined:,}"])
    first = Table.of(
        "How different an attention can be that keeps the prediction",
        ["texts", "JS (nats)", "share of the largest", "JS > 0.6 (%)", "upper bound", "n"],
        worst,
        "Means with 95 % bootstrap intervals. Share of the largest: of the JS that any attention on "
        f"the text can have, undefined for texts of one item. {_NOT_ALONE}",
    )
    second = Table.of(
        "What Jain & Wallace's search finds at the same epsilon, on the texts searched",
        ["texts", "JS (nats)", "by search", "gap", "change by search (TVD)", "n"],
        by_search,
        "Means with 95 % bootstrap intervals; gap: what the search falls short of on each text.",
    )
    return [first, second] if searched else [first]


def shares_by_bin(values: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of the defined values in each of the paper's 40 bins from 0 to 0.7, and their edges."""
    defined = values[~np.isnan(values)]
    counts, edges = np.histogram(defined, _BINS, _RANGE)
    return counts / max(len(defined), 1), edges


def _histogram(axes: Axes, rows: Rows, groups: Sequence[Group]) -> None:
    for group in groups:
        bars, edges = shares_by_bin(rows["worst_js"][group.members])
        axes.stairs(bars, edges, fill=True, color=group.color, alpha=0.35)
        axes.stairs(bars, edges, color=group.color, linewidth=1.2)
    if _any(rows, "search_js"):
        words = "found by search, all classes"
        axes.stairs(*shares_by_bin(rows["search_js"]), color=MUTED, ls="--", label=words)
        axes.legend(loc="upper left")
    known = _any(rows, "worst_share")
    share = number(float(np.nanmean(rows["worst_share"])) if known else np.nan)
    axes.set_title(f"mean share of the largest divergence possible: {share}", fontsize=9)
    axes.set(xlim=_LIMITS, xlabel=_DIVERGENCE, ylabel="Share of texts")
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _frontier(axes: Axes, rows: Rows) -> None:
    """The largest mean divergence at each mean change of the prediction, at 200 points."""
    from attnlight.statistics.frontier import EPSILONS, frontier

    # Closer at the left, where the curve rises.
    points = EPSILONS[-2] * np.linspace(0, 1, _POINTS) ** 2
    js = np.interp(points, *frontier(rows["frontier_js"], np.array(EPSILONS)))
    axes.fill_between(points, js, 1.0, color=MUTED, alpha=0.15, linewidth=0)
    axes.plot(points, js, color=INK, label="no attention lies above")
    for name, marker, words in (
        ("worst", "P", "largest at epsilon, mean"),
        ("search", "X", "found by search, mean"),
    ):
        if _any(rows, f"{name}_js"):
            at = [np.nanmean(rows[f"{name}_{what}"]) for what in ("tvd", "js")]
            axes.plot(*at, marker, ms=8, mfc=INK, mec="white", mew=0.8, ls="", label=words)
    axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
    axes.set(xlim=(-0.01, points[-1]), ylim=(0, np.log(2) + 0.035))
    axes.set_xlabel("Mean total variation distance of the prediction")
    axes.set_ylabel("Mean divergence (nats)")
    axes.legend(loc="lower right")


def _any(rows: Rows, name: str) -> bool:
    """Whether the record holds a column that is defined in some row."""
    return name in rows and not np.isnan(rows[name]).all()
