"""The histograms of Jain & Wallace: tau between attention, gradients and leave-one-out."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import false_discovery_control

from attnlight.figures.methods import COMPARED
from attnlight.figures.style import canvas, predicted_groups
from attnlight.figures.tables import RecordTable, Rows, class_name, number
from attnlight.figures.violins import draw_taus
from attnlight.statistics import holm

PAIRS = (
    ("attention", "input_gradient"),
    ("attention", "loo"),
    ("input_gradient", "loo"),
    ("attention", "input_gradient_attached"),
    ("input_gradient_attached", "loo"),
)
_LEVEL = 0.05
_PUBLISHED = 3  # leading pairs in the paper; the others are drawn only if these are missing


def tables(
    rows: Rows, classes: Sequence[str] | None = None, gradients_of: str | None = None
) -> list[RecordTable]:
    """For each pair of scores tau over all rows and by predicted class, and its significance.

    The standard deviation has divisor n, as in Jain & Wallace. Shares of p <= 0.05 are over rows
    with a tau, first unadjusted, then with p adjusted for multiple tests.
    """
    result: list[RecordTable] = []
    said = " Gradients are those of the log odds of the predicted class."
    said = said if gradients_of == "predicted" else ""
    for first, second in (pair for pair in PAIRS if f"tau_{'_'.join(pair)}" in rows):
        lines = []
        for label in [None, *np.unique(rows["prediction"]).tolist()]:
            members = slice(None) if label is None else rows["prediction"] == label
            tau, p = (rows[f"{measure}_{first}_{second}"][members] for measure in ("tau", "p"))
            defined = ~np.isnan(tau)
            means, significant = [number(np.nan)] * 2, [number(np.nan)] * 3
            undefined = f"{100 * (1 - defined.mean()):.1f} %"
            if defined.any():
                defined_tau, tested = tau[defined].astype(np.float64), p[defined]
                means = [number(defined_tau.mean()), number(defined_tau.std())]
            if defined.any() and not np.isnan(tested).any():  # of sampled positions there are none
                adjusted = (tested, holm(tested), false_discovery_control(tested))
                significant = [f"{100 * np.mean(p <= _LEVEL):.1f} %" for p in adjusted]
            cells = [*means, undefined, *significant, f"{defined.sum():,}"]
            lines.append([class_name(label, classes), *cells])
        fields = {"first": COMPARED[first], "second": COMPARED[second], "gradients": said}
        result.append(("pair", lines, fields))
    return result


def draw(rows: Rows, classes: Sequence[str] | None = None, **_: object) -> Figure:
    """Histograms of tau by predicted class, one panel for each pair of scores."""
    present = [pair for pair in PAIRS if f"tau_{'_'.join(pair)}" in rows]
    pairs = [pair for pair in PAIRS[:_PUBLISHED] if pair in present] or present
    groups = predicted_groups(rows["prediction"], classes)
    with canvas(0.8 + 1.35 * len(pairs), groups) as figure:
        panels = figure.subplots(len(pairs), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (first, second) in zip(panels, pairs, strict=True):
            draw_taus(axes, rows[f"tau_{first}_{second}"], groups)
            axes.grid(axis="x")
            axes.set_title(f"{COMPARED[first]} and {COMPARED[second]}", loc="left")
        panels[-1].set(xlim=(-1, 1), xlabel="Kendall's tau-b")
        figure.supylabel("Share of texts", fontsize=10)
    return figure
