"""The figure of docs/known_answers.md: how well the best measure of each test tells the groups apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attnlight.figures.style import styled
from results_page.known_answers import LABELS, Checkpoints, title


def draw_scores(points: Checkpoints, path: Path) -> None:
    """Write the held-out area of each test's best measure, for both labels, with the best control."""
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(7.0, 2.8), layout="constrained")
        axes = figure.subplots(1, len(LABELS), sharey=True)
        for axis, label in zip(axes, LABELS, strict=True):
            best = points.best(label)
            areas = [points.held_out[label][measure] for measure in best.values()]
            places = np.arange(len(areas))[::-1]
            middle, low, high = (np.array([area[i] for area in areas]) for i in range(3))
            errors = np.nan_to_num([middle - low, high - middle]).clip(min=0)
            axis.errorbar(middle, places, xerr=errors, fmt="o", capsize=2)
            control = points.best_control(label)[1].mean
            axis.axvline(control, linestyle="--", color="0.5", label="best control")
            axis.axvline(0.5, color="0.8", zorder=0)
            axis.set(xlim=(0, 1.02), xlabel="held-out area under ROC", title=f"use of {label}")
        axes[0].set_yticks(np.arange(len(points.best()))[::-1], map(title, points.best().values()))
        axes[0].legend()
        figure.savefig(path, dpi=150, metadata={"Software": None})
