"""Figures by epoch of a run: the task's metrics, and the means of each test."""

from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnlight.figures import describe
from attnlight.figures.style import PALETTE, canvas
from attnlight.report.headlines import headline
from attnlight.report.run import Run
from attnlight.report.summary import summarise

PANELS = 6  # most of one figure
_TITLE = 30  # characters that fit above a panel


def curve_figures(run: Run) -> dict[str, tuple[Figure, str]]:
    """A figure by epoch with its caption, by test; the task's metrics are `metrics`.

    Of a test with more than six measures, the headline and the next five are drawn.
    """
    captions = {"metrics": "What the task logged on the validation split after each epoch."}
    points: list[tuple[object, ...]] = []
    for name, logged in list(run.curves.items())[:PANELS]:
        points += [("metrics", name, *point, np.nan, np.nan) for point in logged.items()]
    for record in run.epoch_records:
        summary = summarise(record, by_class=False)
        record.file.close()  # there may be more than a process may have open
        # Accuracy is among the task's metrics already.
        measures = [measure for measure, _ in summary.means if measure not in run.curves]
        first = headline(summary)
        leading = [first.measure] if first and first.measure in measures else []
        shown = list(dict.fromkeys([*leading, *measures]))[:PANELS]
        some = f" {len(shown)} of its {len(measures)} measures are shown."
        captions[record.test] = (
            f"{describe(record.test).title}: mean of each measure on the validation split after "
            "each epoch; the band is its 95 % bootstrap interval."
            f"{some if len(shown) < len(measures) else ''}"
        )
        for measure in shown:
            mean = summary.means[measure, None]
            points.append((record.test, measure, record.epoch, *mean[:3]))
    frame = pd.DataFrame(points, columns=["test", "measure", "epoch", "mean", "low", "high"])
    by_test = frame.groupby("test", sort=False)
    return {str(test): (_draw_curves(curves), captions[str(test)]) for test, curves in by_test}


def _draw_curves(curves: pd.DataFrame) -> Figure:
    """One panel for each measure, two per row: a line with a band of its intervals."""
    names = list(dict.fromkeys(curves["measure"]))[:PANELS]
    rows = (len(names) + 1) // 2
    with canvas(1.85 * rows + 0.2) as figure:
        panels = iter(figure.subplots(rows, 2, squeeze=False).flat)
        for name in names:
            # Rounded, so that a constant measure does not fill its panel with rounding errors.
            curve = curves[curves["measure"] == name].round(9)
            axes: Any = next(panels)
            band = curve.loc[np.isfinite(curve["low"]), ["epoch", "low", "high"]].to_numpy().T
            if band.shape[1] == 1:
                axes.vlines(*band, color=PALETTE[0], linewidth=1)
            elif band.size:
                axes.fill_between(*band, color=PALETTE[0], alpha=0.22, linewidth=0)
            axes.plot(curve["epoch"], curve["mean"], "o-", color=PALETTE[0], markersize=3.5)
            axes.set_title(panel_title(name), loc="left", fontsize=9)
            axes.set(xlabel="Epoch", xlim=(curve["epoch"].min() - 0.5, curve["epoch"].max() + 0.5))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
        for axes in panels:
            axes.set_axis_off()
    return figure


def panel_title(measure: str) -> str:
    r"""A measure's name in lines that fit above a panel, broken after underscores.

    Example:
        >>> panel_title("tau_attention_input_gradient_attached")
        'tau_attention_input_\ngradient_attached'
    """
    lines = wrap(measure.replace("_", "_ "), _TITLE, break_on_hyphens=False)
    return "\n".join(line.replace("_ ", "_") for line in lines)
