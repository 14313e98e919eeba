"""Attention of translations as matrices, with the known links."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnlight.batch import SURE
from attnlight.figures.style import INK, canvas
from attnlight.figures.tables import Rows, class_name

_TARGETS = 30  # of a longer translation the first words are shown


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """A matrix of each sentence that the record shows: target words by source words."""
    shown = np.array([one is not None for one in rows["shown_weights"]])
    sentences = np.unique(rows["index"][shown])
    sizes = [min(_TARGETS, int((rows["index"] == index).sum())) for index in sentences]
    heights = [0.9 + 0.17 * size for size in sizes] or [0.5]
    with canvas(sum(heights)) as figure:
        figure.set_layout_engine("constrained")
        panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, index in zip(panels, sentences, strict=False):
            own = np.flatnonzero(rows["index"] == index)[:_TARGETS]
            weights = np.stack([rows["shown_weights"][row] for row in own])
            axes.pcolormesh(weights, cmap="Greys", vmin=0, vmax=1)
            axes.invert_yaxis()
            for place, row in enumerate(own):
                for item in np.flatnonzero(np.asarray(rows["shown_links"][row])):
                    square = Rectangle((float(item), place), 1, 1, fill=False, edgecolor=INK)
                    sure = rows["shown_links"][row][item] == SURE
                    square.set(linewidth=0.9, linestyle="solid" if sure else "dotted")
                    axes.add_patch(square)
            words = list(rows["shown_words"][own[0]])[: weights.shape[1]]
            centres = np.arange(len(words)) + 0.5
            axes.set_xticks(centres, words, rotation=60, ha="left", rotation_mode="anchor")
            axes.xaxis.tick_top()
            names = [class_name(int(label), classes) for label in rows["label"][own]]
            axes.set_yticks(np.arange(len(names)) + 0.5, names)
            axes.tick_params(length=0)
        for axes in panels[len(sentences) :]:
            axes.remove()
    return figure
