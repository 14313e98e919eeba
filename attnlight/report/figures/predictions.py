"""How peaked attention is, and how far the probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.style import INK, MUTED, PALETTE, canvas, predicted_groups
from attnlight.report.violins import violins_by_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "What was predicted, and how peaked is attention?"
SOURCE = "Calibration after Guo et al. (2017)"
MEASURES = {
    "accuracy": "share of predictions that equal the label",
    "max_attention": "largest attention weight of the text (0 to 1)",
    "attention_entropy": "entropy of attention (nats; 0 where all weight is on one word)",
}
CAPTION = (
    "Top: the largest attention weight and the entropy of attention, by predicted class; solid "
    "lines are medians, dotted lines quartiles. Bottom, where the corpus has labels: how often "
    "the model is right against how sure it is, in ten equal bins of the winning class's "
    "probability, with 95 % Wilson intervals; area grows with the share of instances, a calibrated "
    "model lies on the diagonal, ECE is the expected calibration error (Guo et al. 2017)."
)
_BINS = 10


class Reliability(NamedTuple):
    """Bins of confidence that hold instances.

    Attributes:
        confidence: Mean probability of the winning class in each bin, (K,).
        accuracy: Share of right predictions, (K,).
        low: Lower end of the 95 % Wilson interval of the share, (K,).
        high: Upper end, (K,).
        share: Share of all instances, (K,).
        error: Expected calibration error, the mean of |accuracy - confidence| weighed by share.
    """

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    share: NDArray[np.float64]
    error: float


def draw(rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None) -> Figure:
    """Maximum attention and entropy by predicted class, and calibration where there are labels."""
    groups = predicted_groups(rows["prediction"], classes)
    labelled = "label" in rows and bool((rows["label"] >= 0).any())
    heights = [0.75 + 0.32 * len(groups)] + [2.7] * labelled
    mosaic: list[Any] = [["attention", "entropy"]] + [["calibration", "calibration"]] * labelled
    with canvas(sum(heights) + 0.5, groups) as figure:
        figure.set_layout_engine("constrained", hspace=0.06)
        axes = figure.subplot_mosaic(mosaic, height_ratios=heights)
        violins_by_class(axes["attention"], rows["max_attention"], groups, (0.0, 1.0))
        axes["attention"].set_xlabel("Maximum attention weight")
        entropy = rows["attention_entropy"]
        most = 1.02 * float(np.nanmax(entropy, initial=0.1))
        violins_by_class(axes["entropy"], entropy, groups, (0.0, most))
        axes["entropy"].set_xlabel("Attention entropy (nats)")
        if labelled:
            found = reliability(rows["probabilities"], rows["label"])
            _draw_reliability(axes["calibration"], found, rows["probabilities"].shape[1])
    return figure


def reliability(probabilities: NDArray[np.floating], label: NDArray[Any]) -> Reliability:
    """Share of right predictions by the probability of the winning class.

    Args:
        probabilities: (R, C).
        label: Classes (R,); rows where it is NaN or negative are left out.
    """
    from scipy.stats import binomtest

    kept = label >= 0
    confidence = probabilities[kept].max(axis=1).astype(np.float64)
    right = (probabilities[kept].argmax(axis=1) == label[kept]).astype(np.float64)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    filled = counts > 0
    n, hits = counts[filled], np.bincount(bins, right, _BINS)[filled]
    tests = [binomtest(int(k), int(size)) for k, size in zip(hits, n, strict=True)]
    low, high = np.array([test.proportion_ci(method="wilson") for test in tests]).T
    mean, share = np.bincount(bins, confidence, _BINS)[filled] / n, n / n.sum()
    error = float(np.abs(hits / n - mean) @ share)
    return Reliability(mean, hits / n, low, high, share, error)


def _draw_reliability(axes: Axes, found: Reliability, classes: int) -> None:
    chance = 1 / classes
    axes.plot([chance, 1], [chance, 1], "--", color=MUTED, linewidth=0.9)
    axes.vlines(found.confidence, found.low, found.high, color=INK, linewidth=0.9)
    axes.plot(found.confidence, found.accuracy, color=PALETTE[0], linewidth=1.2)
    axes.scatter(
        found.confidence,
        found.accuracy,
        s=20 + 260 * found.share,
        facecolor=PALETTE[0],
        edgecolor=INK,
        linewidth=0.6,
        zorder=3,
        clip_on=False,
    )
    axes.set(xlim=(chance - 0.03, 1.03), ylim=(-0.04, 1.04))
    axes.set(xlabel="Probability of the winning class", ylabel="Share of right predictions")
    axes.text(0.98, 0.06, f"ECE = {found.error:.3f}", transform=axes.transAxes, ha="right")
    axes.grid()
    axes.set_axisbelow(True)
