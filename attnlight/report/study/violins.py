"""Violins of how far other seeds and adversaries attend from their base, by its peakedness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.study.estimates import JS
from attnlight.report.study.reading import Study, StudyRun
from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "Jensen-Shannon divergence of each text's attention from that of {base}, by the base's largest "
    "attention weight on the text and by its predicted class: the median over {runs}. Solid lines "
    "are medians, dotted lines quartiles; fewer than five texts are drawn as points. After Wiegreffe "
    "& Pinter (2019), figures 3 and 4."
)
_LIMITS = (-0.05, 0.73)
_LABEL = "Jensen-Shannon divergence from the base's attention (nats)"


def draw_violins(study: Study, base: StudyRun, runs: Sequence[StudyRun]) -> Figure | None:
    """Each text's median divergence over some variants of a base.

    Returns:
        The figure; None where the base or every variant is unfinished, or nothing is defined.
    """
    if not (runs and base.finished):
        return None
    js, attention = (study.values(runs, name) for name in (JS, "base_max_attention"))
    prediction = study.columns[base.name]["prediction"]
    kept = (prediction >= 0) & ~np.isnan(js).any(axis=0) & ~np.isnan(attention[0])
    if not kept.any():
        return None
    rows = {
        "prediction": prediction[kept],
        "max_attention": attention[0][kept],
        JS: np.median(js[:, kept], axis=0),
    }
    figure = violins_by_max_attention(rows, JS, _LABEL, _LIMITS, study.classes)
    figure.axes[0].set_ylabel("Maximum attention weight of the base")
    return figure
