"""The histograms of Jain & Wallace: tau between attention, gradients and leave-one-out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.figures import described_table
from attnlight.report.style import INK, canvas, predicted_groups
from attnlight.report.tables import Rows, Table, class_name, number
from attnlight.report.violins import draw_histograms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = {
    "attention": "attention",
    "input_gradient": "gradient",
    "input_gradient_attached": "gradient through attention",
    "loo": "leave-one-out",
}
PAIRS = (
    ("attention", "input_gradient"),
    ("attention", "loo"),
    ("input_gradient", "loo"),
    ("attention", "input_gradient_attached"),
    ("input_gradient_attached", "loo"),
)
LEVEL = 0.05
_PUBLISHED = 3  # of the pairs; the others are drawn only in their absence
_EDGES = np.linspace(-1, 1, 31)


class Correlation(NamedTuple):
    """Tau of one pair of scores over some rows.

    Attributes:
        mean: Mean of the defined values, NaN where there is none.
        std: Their standard deviation, with divisor n as Jain & Wallace have it.
        undefined: Share of rows without a tau.
        significant: Share of the defined ones with p <= 0.05, each row by itself.
        holm: The same, with p adjusted for as many tests by Holm's method.
        benjamini_hochberg: The same, adjusted by Benjamini & Hochberg's.
        defined: How many values are defined.
    """

    mean: float
    std: float
    undefined: float
    significant: float
    holm: float
    benjamini_hochberg: float
    defined: int


def correlation(tau: NDArray[np.floating], p: NDArray[np.floating]) -> Correlation:
    """Summarise tau (R,) and its p-values (R,), NaN where undefined; R is at least 1."""
    from scipy.stats import false_discovery_control

    from attnlight.statistics import holm

    defined = ~np.isnan(tau)
    kept, tested = tau[defined].astype(np.float64), p[defined]
    if not len(kept):
        return Correlation(np.nan, np.nan, 1.0, np.nan, np.nan, np.nan, 0)
    return Correlation(
        mean=float(kept.mean()),
        std=float(kept.std()),
        undefined=float(1 - len(kept) / len(tau)),
        significant=float(np.mean(tested <= LEVEL)),
        holm=float(np.mean(holm(tested) <= LEVEL)),
        benjamini_hochberg=float(np.mean(false_discovery_control(tested) <= LEVEL)),
        defined=len(kept),
    )


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[Table]:
    """For each pair of scores, tau and its significance over all rows and by predicted class."""
    members = {"all": np.ones(len(rows["index"]), dtype=bool)}
    for c in np.unique(rows["prediction"]).tolist():
        members[class_name(c, classes)] = rows["prediction"] == c
    found = []
    for one, other in PAIRS:
        if f"tau_{one}_{other}" not in rows:
            continue
        lines = []
        for name, chosen in members.items():
            tau, p = (rows[f"{measure}_{one}_{other}"][chosen] for measure in ("tau", "p"))
            mean, std, *shares, defined = correlation(tau, p)
            cells = [number(s) if np.isnan(s) else f"{100 * s:.1f} %" for s in shares]
            lines.append([name, number(mean), number(std), *cells, f"{defined:,}"])
        words = {"one": WORDS[one], "other": WORDS[other]}
        found.append(described_table("importance_correlation", "pair", lines, **words))
    return found


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Histograms of tau by predicted class, one panel for each pair of scores."""
    present = [pair for pair in PAIRS if f"tau_{'_'.join(pair)}" in rows]
    pairs = [pair for pair in PAIRS[:_PUBLISHED] if pair in present] or present
    groups = predicted_groups(rows["prediction"], classes)
    with canvas(0.8 + 1.35 * len(pairs), groups) as figure:
        panels = figure.subplots(len(pairs), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (one, other) in zip(panels, pairs, strict=True):
            tau = rows[f"tau_{one}_{other}"]
            draw_histograms(axes, tau, groups, _EDGES)
            for group in groups:
                if not np.isnan(tau[group.members]).all():
                    mean = float(np.nanmean(tau[group.members]))
                    axes.axvline(mean, color=group.color, linewidth=1.4)
            axes.axvline(0, color=INK, linewidth=0.6, zorder=0)
            axes.set_ylim(bottom=0)
            axes.grid(axis="x")
            axes.set_title(f"{WORDS[one]} and {WORDS[other]}", loc="left")
        panels[-1].set(xlim=(-1, 1), xlabel="Kendall's tau-b")
        figure.supylabel("Share of texts", fontsize=10)
    return figure
