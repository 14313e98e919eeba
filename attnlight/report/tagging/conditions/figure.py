"""Figure: what adversaries reach at which cost, a panel for each readout and choice of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.report.style import COLUMN_WIDTH, INK, MUTED, PALETTE, PAPER, new_figure, styled
from attnlight.report.tagging.conditions.reading import Condition, settings
from attnlight.statistics.exclusivity import COST, Curve, Runs, exclusivity_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "How different attention can be trained to be at a given cost: mean JS from the base's "
    "attention, as a share of the largest that any attention on a row could have, against the mean "
    "total variation distance of the predictions above that of lambda 0 of the same seed. Thin lines "
    "are the upper envelopes of single seeds with their corners, a thick line their mean as far as "
    f"all of them reach. Exclusivity is read at {COST:g}, the dotted line, with its 95 % interval "
    "over seeds; hollow, it is a lower bound, for some curve ends before. Of these only every token's tag against one marked token's are a comparison; the "
    "class of a sentence stands beside."
)
_COLORS = {"tokens": PALETTE[0], "marked": PALETTE[5], "sentence": PALETTE[2]}
_MARKS = {"tokens": "o", "marked": "s", "sentence": "^"}
_REACH = 5 * COST  # of the axis, beyond which nothing is read
_SHORT = {
    "tokens": "every token's tag",
    "marked": "one marked token's",
    "sentence": "the sentence's class",
}


def draw_exclusivity(conditions: Sequence[Condition]) -> Figure | None:
    """Curves by target; None where no condition has one."""
    found = {
        setting: {target: one.runs for target, one in by_target.items() if one.runs is not None}
        for setting, by_target in settings(conditions).items()
    }
    found = {setting: by_target for setting, by_target in found.items() if by_target}
    if not found:
        return None
    readouts, features = (list(dict.fromkeys(part)) for part in zip(*found, strict=True))
    with styled():
        figure = new_figure(COLUMN_WIDTH, max(2.2 * len(readouts), 2.9) + 0.9)
        panels = figure.subplots(
            len(readouts), len(features), sharex=True, sharey=True, squeeze=False
        )
        for row, readout in enumerate(readouts):
            for column, feature in enumerate(features):
                axes, setting = panels[row, column], (readout, feature)
                axes.set_visible(setting in found)
                axes.set_title(", ".join(setting), loc="left")
                _draw(axes, found.get(setting, {}), conditions, setting)
        figure.supxlabel("TVD of predictions above that of λ = 0", fontsize=10, color=INK)
        figure.supylabel("JS of attention, share of the largest", fontsize=10, color=INK)
        _legend(figure, {target for by_target in found.values() for target in by_target})
    return figure


def _draw(
    axes: Axes,
    by_target: Mapping[str, Runs],
    conditions: Sequence[Condition],
    setting: tuple[str, str],
) -> None:
    held = {one.target: one.found for one in conditions if one.setting == setting}
    axes.axvline(COST, color=MUTED, lw=1.0, ls=":", zorder=2)
    for target, runs in by_target.items():
        color = _COLORS[target]
        curves = curves_of(runs)
        for curve in curves:
            x, y = _until(curve)
            axes.plot(x, y, "-", color=color, lw=0.7, alpha=0.5, zorder=4)
            axes.plot(
                curve.cost, curve.share, _MARKS[target], ms=2.5, color=color, alpha=0.5, mew=0
            )
        axes.plot(*mean_curve(curves), "-", color=color, lw=1.8, zorder=5)
        found = held[target]
        if found is not None:
            axes.plot([COST, COST], [found.low, found.high], "-", color=color, lw=2.6, zorder=6)
            fill, edge = (PAPER, color) if found.censored else (color, PAPER)
            axes.plot(COST, found.value, _MARKS[target], ms=6, mfc=fill, mec=edge, mew=1, zorder=7)
    axes.set(xlim=(-0.03 * _REACH, _REACH), ylim=(0, 1))
    ticks = [step * COST for step in range(round(_REACH / COST) + 1)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid()
    axes.set_axisbelow(True)


def curves_of(runs: Runs) -> list[Curve]:
    """The curve of each seed."""
    found = []
    for seed in np.unique(runs.seeds):
        own = runs.seeds == seed
        found.append(exclusivity_curve(runs.lambdas[own], runs.tvd[own], runs.share[own]))
    return found


def mean_curve(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Mean height of some curves as far as all of them reach, (2, m)."""
    end = min(curve.end for curve in curves)
    corners = np.concatenate([[0.0, end], *(curve.cost for curve in curves)])
    x = np.unique(corners[corners <= end])
    return np.stack(
        [x, np.mean([np.interp(x, curve.cost, curve.share) for curve in curves], axis=0)]
    )


def _until(curve: Curve) -> NDArray[np.float64]:
    """A curve's corners and its flat end, (2, K + 1)."""
    return np.stack([np.append(curve.cost, curve.end), np.append(curve.share, curve.share[-1])])


def _legend(figure: Figure, targets: set[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_COLORS[target], marker=_MARKS[target], ms=5, mec="white", label=name)
        for target, name in _SHORT.items()
        if target in targets
    ]
    close = {"handlelength": 1.6, "columnspacing": 1.2, "handletextpad": 0.5}
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), **close)
