"""Figure: what adversaries reach at which cost, a panel for each readout and choice of features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.series import panels
from attnlight.report.style import INK, MUTED, PALETTE, PAPER
from attnlight.statistics.exclusivity import COST, Curve, exclusivity_curve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from attnlight.report.study.conditions import Condition

ASKED = {"tokens": "every token's tag", "marked": "one marked token's tag"}
ASKED |= {"sentence": "a class of the sentence"}
_LOOKS = {"tokens": (PALETTE[0], "o"), "marked": (PALETTE[5], "s"), "sentence": (PALETTE[2], "^")}
_REACH = 5 * COST  # of the axis, beyond which nothing is read


def draw_exclusivity(conditions: Sequence[Condition]) -> Figure | None:
    """Curves of seeds by target, their mean, and what is read from them.

    Returns:
        The figure; None where no condition has a curve.
    """
    found = [one for one in conditions if one.found.seeds]
    if not found:
        return None
    parts = zip(*(one.setting for one in found), strict=True)
    readouts, features = (list(dict.fromkeys(part)) for part in parts)
    height, size = max(2.2 * len(readouts), 2.9) + 0.9, (len(readouts), len(features))
    ticks = np.arange(0, _REACH + COST / 2, COST)
    with panels(height, *size, sharex=True, sharey=True) as (figure, shown):
        for axes, setting in zip(shown, product(readouts, features), strict=True):
            own = [one for one in found if one.setting == setting]
            axes.set_visible(bool(own))
            axes.set_title(", ".join(setting), loc="left")
            axes.axvline(COST, color=MUTED, lw=1.0, ls=":", zorder=2)
            axes.set(xlim=(-0.03 * _REACH, _REACH), ylim=(0, 1))
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            for one in own:
                (color, mark), curves = _LOOKS[one.target], curves_of(one.curves)
                for cost, share, end in curves:
                    whole = np.append(cost, end), np.append(share, share[-1])
                    axes.plot(*whole, "-", color=color, lw=0.7, alpha=0.5, zorder=4)
                    axes.plot(cost, share, mark, ms=2.5, color=color, alpha=0.5, mew=0)
                line = mean_curve(curves)
                axes.plot(*line, "-", color=color, lw=1.8, zorder=5, label=ASKED[one.target])
                ends = one.found.low, one.found.high
                axes.plot([COST, COST], ends, "-", color=color, lw=2.6, zorder=6)
                fill, edge = (PAPER, color) if one.found.censored else (color, PAPER)
                axes.plot(COST, one.found.value, mark, ms=6, mfc=fill, mec=edge, mew=1, zorder=7)
        figure.supxlabel("TVD of predictions above that of λ = 0", fontsize=10, color=INK)
        figure.supylabel("JS of attention, share of the largest", fontsize=10, color=INK)
    return figure


def curves_of(runs: pd.DataFrame) -> list[Curve]:
    """The curve of each base and seed."""
    points = (own[["lam", "tvd", "share"]].to_numpy().T for _, own in runs.groupby("curve"))
    return [exclusivity_curve(*own) for own in points]


def mean_curve(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Mean height of some curves as far as all of them reach, (2, m)."""
    end = min(curve.end for curve in curves)
    corners = np.concatenate([[0.0, end], *(curve.cost for curve in curves)])
    x = np.unique(corners[corners <= end])
    heights = [np.interp(x, curve.cost, curve.share) for curve in curves]
    return np.stack([x, np.mean(heights, axis=0)])
