"""Divergence of a variant's attention and prediction from its base's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import INK, MUTED, canvas, link_points, predicted_groups
from attnlight.figures.tables import Rows
from attnlight.figures.violins import bins_height, draw_bins, links_of

_DRAWN = ("attention_js", "prediction_tvd", "base_max_attention")
_JS_LIMITS = (-0.035, np.log(2) + 0.035)
_MAX_VECTOR_POINTS = 3_000  # more points are rasterized


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Violins of the divergence by the base's maximum attention; divergence against distance."""
    defined = ~np.isnan(np.stack([rows[name] for name in _DRAWN])).any(axis=0)
    if not defined.any():
        return None
    js, tvd, attention = (rows[name][defined] for name in _DRAWN)
    groups, links = predicted_groups(rows["prediction"][defined], classes), links_of(rows)[defined]
    heights = [bins_height(groups), 3.0]
    label = "Jensen-Shannon divergence from the base's attention (nats)"
    with canvas(sum(heights), groups) as figure:
        above, below = figure.subplots(2, 1, height_ratios=heights)
        above.set_xlim(_JS_LIMITS)
        draw_bins(above, js, attention, groups, links)
        above.set(xlabel=label, ylabel="Maximum attention weight of the base")
        dots: dict[str, Any] = {"s": 9, "linewidth": 0, "rasterized": len(js) > _MAX_VECTOR_POINTS}
        dots["alpha"] = float(np.clip(150 / len(js), 0.08, 0.7))
        for _, color, members in groups:
            below.scatter(tvd[members], js[members], color=color, **dots)
        link_points(below, tvd, js, links)
        below.plot(tvd.mean(), js.mean(), "P", ms=8, mfc=INK, mec="white", mew=0.8)
        below.axhline(np.log(2), color=MUTED, linewidth=0.8, linestyle="--")
        below.set(xlim=(-0.03, 1.03), ylim=_JS_LIMITS, ylabel="Divergence of attention (nats)")
        below.set_xlabel("Total variation distance from the base's prediction")
        below.grid()
    return figure
