"""Figures of the front page, drawn from cells of the tables: a row for each model, a colour each column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.style import PALETTE, figure_bytes, styled
from results_page import NAMES
from results_page.findings import Cell, Tables
from results_page.tables import DASH

_COMPARED = NAMES["figures"]


def draw_tables(tables: Tables, folder: Path) -> None:
    """Write the figures of Jain & Wallace, Serrano & Smith, attribution methods, honest attention and ROAR."""
    for stem, given in _COMPARED["columns"].items():
        series = {
            name: {
                ", ".join([*row.values()][: given["labels"]]): Cell(row[column])
                for row in tables.rows(*of)
            }
            for name, (column, *of) in given["series"].items()
        }
        draw(series, given["words"], folder / f"{stem}.png")
    honest = {
        condition: {row["measure"]: Cell(row["difference"]) for row in rows}
        for condition in _COMPARED["honest"]
        if (rows := tables.rows("honest_differences", condition))[0]["seeds"] != "0"
    }
    if honest:
        draw(honest, "Difference from a plain LSTM, SST", folder / "honest.png")
    erased: dict[str, dict[str, Cell]] = {}
    for corpus, method, _, *accuracies in (row.items() for row in tables.rows("roar")[1:]):
        cells = {f"{corpus[1]}, {share}": Cell(x) for share, x in accuracies[:-1] if x != DASH}
        erased[method[1]] = erased.get(method[1], {}) | cells
    words = "Test accuracy of models trained without the words that a method ranks first"
    draw({x: cells for x, cells in erased.items() if cells}, words, folder / "roar.png")


def draw(series: Mapping[str, Mapping[str, Cell]], words: str, path: Path) -> None:
    """Write a figure of cells by model and series, each with its interval."""
    labels = list(dict.fromkeys(label for cells in series.values() for label in cells))
    with styled():
        figure = Figure(figsize=(7.0, 1.0 + 0.24 * len(labels)), layout="constrained")
        axes = figure.subplots()
        for number, (name, cells) in enumerate(series.items()):
            middle, low, high = np.array([[x.value, x.low, x.high] for x in cells.values()]).T
            shift = 0.3 * (number - (len(series) - 1) / 2) / len(series)
            places = [-labels.index(label) - shift for label in cells]
            errors = np.nan_to_num([middle - low, high - middle]).clip(min=0)
            style: dict[str, Any] = {"fmt": "osD^vP"[number], "color": PALETTE[number], "ms": 4}
            axes.errorbar(middle, places, xerr=errors, label=name, elinewidth=1, capsize=0, **style)
        axes.set_yticks([-place for place in range(len(labels))], labels)
        axes.set(xlabel=words, ylim=(0.6 - len(labels), 0.6))
        figure.legend(loc="outside upper center", ncols=3)
        path.write_bytes(figure_bytes(figure, "png"))
