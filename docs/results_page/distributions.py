"""Figures of single texts as the papers draw them: a panel for each model, by predicted class."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from attnlight.figures import erasure
from attnlight.figures.adversarial_attention import draw_divergences
from attnlight.figures.decision_flip import draw_boxes
from attnlight.figures.single_erasure import draw_differences
from attnlight.figures.style import POOLED, Group, canvas, figure_bytes, predicted_groups
from attnlight.figures.tables import Rows
from attnlight.figures.violins import draw_bins, draw_taus, draw_violins, links_of
from attnlight.report.study.figures import violin_rows
from attnlight.report.study.frame import read_study
from attnlight.report.study.groups import named_groups
from results_page import NAMES, importance, pairs, serrano, studies
from results_page.archive import Archive
from results_page.cells import columns

FIGURES: dict[str, dict[str, Any]] = NAMES["distributions"]
_PAGES: dict[str, Mapping[str, Any]] = {
    "jain_wallace": {**importance.MODELS, **pairs.TEXT_MODELS},
    "pairs": pairs.READ,
    "serrano_smith": serrano.MODELS,
}
_WIDTH, _COLUMNS, _DPI = 7.0, 3, 160
_FEW_COLORS: Any = {"method": Image.Quantize.FASTOCTREE, "dither": Image.Dither.NONE}


def draw_distributions(archive: Archive, folder: Path) -> None:
    """Write the figures of all panels into a folder, as files of few colours."""
    figures: dict[tuple[str, str], dict[str, Rows]] = defaultdict(dict)
    for page, kind, title, rows in [*panels_of_runs(archive), *panels_of_studies(archive)]:
        figures[page, kind][title] = rows
    for (page, kind), panels in figures.items():
        content = figure_bytes(draw_panels(kind, panels), "png", _DPI)
        image = Image.open(io.BytesIO(content)).convert("RGB").quantize(**_FEW_COLORS)
        image.save(folder / f"{page}_{kind}.png", optimize=True)


def panels_of_runs(archive: Archive) -> Iterator[tuple[str, str, str, Rows]]:
    """Page, figure, title and columns of each panel whose records have what the figure needs.

    Columns are (R,), of the texts of each seed in turn; tests of one figure are of the same texts.
    """
    for page, models in _PAGES.items():
        words = {x: archive.words(x, model) for x, model in models.items() if x in archive}
        corpora = [x["corpus"] for x in words.values()]
        order = {x: (corpora.index(y["corpus"]), y.get("attention", "")) for x, y in words.items()}
        for name, (kind, given) in product(sorted(order, key=order.__getitem__), FIGURES.items()):
            records = archive[name].folders[0] / "records/test"
            tests, attention = given.get("tests", {}), order[name][1]
            found = [
                columns(archive[name], x) for x in tests if (records / f"{x}.parquet").exists()
            ]
            rows = {x: values.ravel() for of in found for x, values in of.items()}
            lacking = not tests or {*tests.values()} - rows.keys()
            if not lacking and given.get("attention", attention) == attention:
                corpus, *others = (x for key, x in words[name].items() if key != "seeds")
                yield page, kind, f"{corpus}\n{', '.join(others)}", rows


def panels_of_studies(archive: Archive) -> Iterator[tuple[str, str, str, Rows]]:
    """Those of every base of Wiegreffe & Pinter's studies: a text has its median over runs."""
    kinds = [(kind, given["group"]) for kind, given in FIGURES.items() if "group" in given]
    for name, words in NAMES["findings"]["studies"].items():
        study = read_study(archive.root / studies.FOLDER / name)
        for base, (kind, group) in product(study.bases, kinds):
            runs = named_groups(study, base)[group]
            if rows := violin_rows(study, base, runs):
                yield "wiegreffe_pinter", kind, f"{words}\n{base}, runs: {len(runs)}", rows


def draw_panels(kind: str, panels: Mapping[str, Rows]) -> Figure:
    """A figure of panels by title, with one legend; more than three classes are pooled."""
    given, groups = FIGURES[kind]["axes"], {}
    for title, rows in panels.items():
        found = predicted_groups(rows["prediction"], None)
        pooled = [Group("all predicted classes", POOLED, rows["prediction"] >= 0)]
        groups[title] = found if rows["prediction"].max() < 3 else pooled
    legend = {x.color: x for of in groups.values() for x in of if kind != "removed"}
    ordered = sorted(legend.values(), key=lambda group: group.color == POOLED)
    shape = -(-len(panels) // _COLUMNS), min(_COLUMNS, len(panels))
    with canvas(0.8 + given["height"] * shape[0], ordered) as figure:
        figure.set_figwidth(_WIDTH)
        grid = figure.subplots(*shape, sharex=True, sharey="row", squeeze=False).ravel()
        for place, (axes, (title, rows)) in enumerate(zip(grid, panels.items(), strict=False)):
            axes.set_xlim(given["limits"])
            draw_panel(axes, kind, rows, groups[title])
            axes.set_title(title, fontsize=8)
            if ticks := given.get("ticks"):
                axes.set_yticks(range(len(ticks)), ticks)
            axes.locator_params(axis="x", nbins=4)
            axes.label_outer()
            axes.tick_params(labelbottom=place + shape[1] >= len(panels))
        for axes in grid[len(panels) :]:
            axes.remove()
        figure.supxlabel(given["x"], fontsize=10)
        figure.supylabel(given.get("y", ""), fontsize=10)
    return figure


def draw_panel(axes: Axes, kind: str, rows: Rows, groups: Sequence[Group]) -> None:
    """Draw the texts of a panel, by group or by ranking."""
    match kind:
        case "taus":
            draw_taus(axes, rows["tau_attention_input_gradient"], groups)
        case "differences":
            both = rows["tau_input_gradient_loo"]
            less = [both - rows[f"tau_attention_{x}"] for x in ("loo", "input_gradient")]
            members = [[(g.color, x[g.members & ~np.isnan(x)]) for g in groups] for x in less]
            draw_violins(axes, [[(*y, np.full(len(y[1]), np.nan)) for y in x] for x in members])
        case "divergences":
            draw_divergences(axes, rows, groups)
        case "removed":
            shares = [erasure.steps(rows, x) / rows["length"] for x in erasure.ALL[::-1]]
            draw_boxes(axes, [*np.where(erasure.flipped_by_all(rows), shares, np.nan)])
        case "erasure":
            names = (f"delta_{x}_drawn_attention" for x in ("weight", "js"))
            x, y = (rows[name].astype(np.float64) for name in names)
            defined = ~np.isnan(x)
            shown = [Group(g.name, g.color, g.members[defined]) for g in groups]
            draw_differences(axes, x[defined], y[defined], shown)
            axes.set_yscale("symlog", linthresh=1e-3, linscale=0.5)
            axes.set_yticks([-0.1, 0, 0.1], ["-0.1", "0", "0.1"])
            axes.minorticks_off()
        case _:
            values = rows[FIGURES[kind]["measure"]]
            draw_bins(axes, values, rows["max_attention"], groups, links_of(rows))
