"""Figures of the front page, drawn from cells of the tables: a row for each model, a colour each column."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attnlight.figures.style import PALETTE, figure_bytes, styled
from results_page.findings import Cell, Tables

# What is compared in each figure: columns of `tau` with their names, rankings, and methods.
_TAU = {
    "tau with gradient": "attention and gradient",
    "tau with leave-one-out": "attention and leave-one-out",
    "tau of the two importances": "gradient and leave-one-out",
}
_REMOVED = ("attention", "gradient", "gradient × attention", "minimum")  # noqa: RUF001
_METHODS = (
    *("attention", "gradient", "gradient × input"),  # noqa: RUF001
    *("integrated gradients", "occlusion", "LRP"),
)
_FAITHFUL = "Comprehensiveness above that of random orders"


def draw_tables(tables: Tables, folder: Path) -> None:
    """Write the figures of Jain & Wallace, of Serrano & Smith, and of attribution methods."""
    tau = {
        series: {
            f"{row['corpus']}, {row['encoder']}, {row['attention']}": row[column] for row in rows
        }
        for rows in [tables.rows("tau")]
        for column, series in _TAU.items()
    }
    removed = {
        series: {f"{row['corpus']}, {row['model']}": row[series] for row in rows}
        for rows in [tables.rows("serrano_fraction", "left out")]
        for series in _REMOVED
    }
    faithful = {
        series: {
            f"{row['corpus']}, {row['encoder']}": row["comprehensiveness"]
            for row in tables.rows("saliency_faithfulness")
            if row.get("method") == series
        }
        for series in _METHODS
    }
    draw(tau, "Kendall's tau", folder / "jain_wallace.png")
    removed_by = "Mean share of items removed until the decision flips"
    draw(removed, removed_by, folder / "serrano_smith.png")
    draw(faithful, _FAITHFUL, folder / "saliency.png")


def draw(series: dict[str, dict[str, str]], words: str, path: Path) -> None:
    """Write a figure of cells by model and series, each with its interval."""
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(label for cells in series.values() for label in cells))
    with styled():
        figure = Figure(figsize=(7.0, 1.0 + 0.24 * len(labels)), layout="constrained")
        axes = figure.subplots()
        for number, (name, cells) in enumerate(series.items()):
            parsed = [Cell(text) for text in cells.values()]
            middle, low, high = np.array([[x.value, x.low, x.high] for x in parsed]).T
            shift = 0.3 * (number - (len(series) - 1) / 2) / len(series)
            places = [-labels.index(label) - shift for label in cells]
            errors = np.nan_to_num([middle - low, high - middle]).clip(min=0)
            marker = {"fmt": "osD^vP"[number], "color": PALETTE[number], "ms": 4, "capsize": 0}
            axes.errorbar(middle, places, xerr=errors, label=name, elinewidth=1, **marker)
        axes.set_yticks([-place for place in range(len(labels))], labels)
        axes.set(xlabel=words, ylim=(0.6 - len(labels), 0.6))
        figure.legend(loc="outside upper center", ncols=3)
        path.write_bytes(figure_bytes(figure, "png"))
