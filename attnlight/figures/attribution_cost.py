"""Cost of attribution methods as a multiple of a forward pass."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.style import INK, canvas
from attnlight.figures.tables import RecordTable, Rows, by_cluster, estimate
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means


def mean_costs(rows: Rows) -> dict[str, MeanInterval]:
    """Mean cost of each method by its label, with an interval that resamples batches."""
    methods, rows = recorded_methods(rows, "cost"), by_cluster(rows, "batch")
    costs = np.stack([rows[f"cost_{method}"] for method in methods], axis=1)
    return dict(zip(methods, bootstrap_means(costs, rows["index"]), strict=True))


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """The mean cost of each method with its interval, on a logarithmic axis."""
    means, words = mean_costs(rows), recorded_methods(rows, "cost")
    with canvas(1.0 + 0.3 * len(means)) as figure:
        axes = figure.subplots()
        for place, mean in enumerate(means.values()):
            axes.hlines(place, mean.low, mean.high, INK, linewidth=1.2)
            axes.plot(mean.mean, place, "o", color=INK, ms=5)
        axes.axvline(1, color=INK, linestyle="dotted", linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("Time as a multiple of a forward pass")
        axes.set_yticks(range(len(means)), [words[method] for method in means])
        axes.invert_yaxis()
        axes.grid(axis="x")
    return figure


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """The mean cost of each method."""
    words = recorded_methods(rows, "cost")
    batches = f"{len(np.unique(rows['batch'])):,}"
    lines = [[words[method], estimate(mean), batches] for method, mean in mean_costs(rows).items()]
    return [("costs", lines, {})]
