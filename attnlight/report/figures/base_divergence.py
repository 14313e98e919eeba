"""How far a variant's attention and prediction are from its base's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.style import INK, MUTED, Group, canvas, predicted_groups
from attnlight.report.violins import bins_height, draw_bins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "How far are attention and prediction from those of the base model?"
SOURCE = "Wiegreffe & Pinter (2019), sections 3.2 and 4"
MEASURES = {
    "attention_js": "Jensen-Shannon divergence from the base's attention (nats, 0 to 0.693), of "
    "several heads their mean, after each was matched with one of the base's",
    "attention_js_mean": "the same of the mean over heads",
    "prediction_tvd": "total variation distance from the base's prediction (0 to 1)",
    "base_max_attention": "largest attention weight of the base (0 to 1)",
}
COLUMNS = ("attention_js", "prediction_tvd", "base_max_attention")
CAPTION = (
    "Top: how far the model's attention is from the base's for the same text, by the largest "
    "attention weight of the base and by predicted class; solid lines are medians, dotted lines "
    "quartiles, fewer than five texts are drawn as points. Bottom: the same divergence against how "
    "far the prediction is from the base's, a point for each text; the cross is the mean of both. "
    "Points at the upper left, much divergence and nearly the same prediction, are texts for which "
    "another attention does as well; what two seeds of one model differ by is the scale to read "
    "this on. After the figures of Wiegreffe & Pinter (2019)."
)
_JS_LIMITS = (-0.035, np.log(2) + 0.035)
_DRAWN_AS_VECTORS = 3_000  # points; more of them are one picture within the figure


def draw(rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None) -> Figure | None:
    """Violins of the divergence by the base's maximum attention; divergence against distance."""
    defined = ~np.isnan(np.stack([rows[name] for name in COLUMNS])).any(axis=0)
    if not defined.any():
        return None
    js, tvd, attention = (rows[name][defined] for name in COLUMNS)
    groups = predicted_groups(rows["prediction"][defined], classes)
    heights = [bins_height(groups), 3.0]
    label = "Jensen-Shannon divergence from the base's attention (nats)"
    with canvas(sum(heights), groups) as figure:
        above, below = figure.subplots(2, 1, height_ratios=heights)
        draw_bins(above, js, attention, groups, label, _JS_LIMITS)
        above.set_ylabel("Maximum attention weight of the base")
        _scatter(below, tvd, js, groups)
    return figure


def _scatter(
    axes: Axes, tvd: NDArray[np.floating], js: NDArray[np.floating], groups: Sequence[Group]
) -> None:
    alpha = float(np.clip(150 / len(js), 0.08, 0.7))
    for group in groups:
        axes.scatter(
            tvd[group.members],
            js[group.members],
            s=9,
            color=group.color,
            alpha=alpha,
            linewidth=0,
            rasterized=len(js) > _DRAWN_AS_VECTORS,
        )
    axes.plot(tvd.mean(), js.mean(), "P", ms=8, mfc=INK, mec="white", mew=0.8)
    axes.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
    axes.set(xlim=(-0.03, 1.03), ylim=_JS_LIMITS)
    axes.set_xlabel("Total variation distance from the base's prediction")
    axes.set_ylabel("Divergence of attention (nats)")
    axes.grid()
    axes.set_axisbelow(True)
