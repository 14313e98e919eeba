"""Peakedness of attention, and calibration of the probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import binomtest

from attnlight.figures.style import INK, MUTED, PALETTE, canvas, predicted_groups
from attnlight.figures.tables import Rows
from attnlight.figures.violins import draw_violins, links_of

_BINS = 10


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Maximum attention and entropy by predicted class, and calibration if there are labels."""
    groups, links = predicted_groups(rows["prediction"], classes), links_of(rows)
    highest = 1.02 * float(np.nanmax(rows["attention_entropy"], initial=0.1))
    labelled = "label" in rows and bool((rows["label"] >= 0).any())
    heights = [0.75 + 0.32 * len(groups)] + [2.7] * labelled
    with canvas(sum(heights) + 0.5, groups) as figure:
        figure.set_layout_engine("constrained", hspace=0.06)
        axes = figure.subplot_mosaic("ae;cc" if labelled else "ae", height_ratios=heights)
        for name, column, label, most in (
            ("a", "max_attention", "Maximum attention weight", 1.0),
            ("e", "attention_entropy", "Attention entropy (nats)", highest),
        ):
            defined = ~np.isnan(rows[column])
            shown = [(g.color, g.members & defined) for g in reversed(groups)]
            violins = [[(color, rows[column][m], links[m])] for color, m in shown]
            axes[name].set(xlabel=label, xlim=(0.0, most), yticks=[])
            draw_violins(axes[name], violins)
        if labelled:
            below, chance = axes["c"], 0.0
            if "probabilities" in rows:
                confidence = rows["probabilities"].max(axis=1)
                chance = 1 / rows["probabilities"].shape[1]
            else:  # of many classes
                confidence = rows["probability_prediction"]
            bins = calibration_bins(confidence, rows["prediction"], rows["label"])
            below.plot([chance, 1], [chance, 1], "--", color=MUTED, linewidth=0.9)
            below.vlines(bins["confidence"], bins["low"], bins["high"], color=INK, linewidth=0.9)
            below.plot(bins["confidence"], bins["accuracy"], color=PALETTE[0], linewidth=1.2)
            dots = {"s": 20 + 260 * bins["share"], "facecolor": PALETTE[0], "edgecolor": INK}
            dots |= {"linewidth": 0.6, "zorder": 3, "clip_on": False}
            below.scatter(bins["confidence"], bins["accuracy"], **dots)
            below.set(xlim=(chance - 0.03, 1.03), xlabel="Probability of the winning class")
            below.set(ylim=(-0.04, 1.04), ylabel="Share of right predictions")
            error = ((bins["accuracy"] - bins["confidence"]).abs() * bins["share"]).sum()
            below.text(0.98, 0.06, f"ECE = {error:.3f}", transform=below.transAxes, ha="right")
            below.grid()
    return figure


def calibration_bins(
    confidence: NDArray[np.floating], prediction: NDArray[Any], label: NDArray[Any]
) -> pd.DataFrame:
    """Accuracy in ten equal bins of the probability of the predicted class.

    The probability of the predicted class, it and the class are (R,); rows whose class is NaN or
    negative are left out.

    Returns:
        A row for each non-empty bin: the number of instances `n`, of correct ones `right` and their
        `share` of all, the mean probability of the predicted class as `confidence`, and `accuracy`
        with its 95 % Wilson interval, `low` and `high`.
    """
    labelled = label >= 0
    confidence, right = confidence[labelled].astype(np.float64), (prediction == label)[labelled]
    rows = pd.DataFrame({"confidence": confidence, "right": right})
    tenths = rows.groupby(np.minimum((confidence * _BINS).astype(int), _BINS - 1))
    bins = tenths.agg(
        n=("right", "size"), right=("right", "sum"), confidence=("confidence", "mean")
    )
    tests = [binomtest(*counts) for counts in bins[["right", "n"]].to_numpy().tolist()]
    bins[["low", "high"]] = [test.proportion_ci(method="wilson") for test in tests]
    return bins.assign(accuracy=bins["right"] / bins["n"], share=bins["n"] / len(rows))
