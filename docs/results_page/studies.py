"""Wiegreffe & Pinter's tables of each kept study, ours beside the published.

`docs/results/studies/<name>/` holds a study's study.json and study.parquet and nothing else, so
that `attnlight report` reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlight.report.grids import Grid, markdown_table
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import guides
from attnlight.report.study.reading import Study, read_study
from attnlight.report.study.tables import tables
from attnlight.report.study.verdict import verdicts
from results_page.tables import DASH

FOLDER = "studies"  # below docs/results
# The published corpus of the experiments whose name starts so.
CORPORA = {"sst_": "sst", "imdb_": "imdb", "20_newsgroups_sports_": "20_newsgroups_sports"}


def study_blocks(folder: Path, published: Mapping[str, Any]) -> dict[str, str]:
    """Tables and sentences of every kept study by the name of their place on the page.

    Args:
        folder: docs/results/studies.
        published: docs/results/published.yaml.

    Returns:
        For each study `<name>_table2`, `_table3`, `_table4`, `_seeds`, `_lambdas` and `_verdict`;
        none where no study is kept.

    Raises:
        InputError: The files of a study are missing or damaged.
    """
    found = {}
    for path in sorted(folder.glob("*/study.json")):
        study = read_study(path.parent)
        place = path.parent.name.replace("-", "_")
        for name, text in _blocks(study, published["wiegreffe_pinter"]).items():
            found[f"{place}_{name}"] = text
    return found


def _blocks(study: Study, published: Mapping[str, Any]) -> dict[str, str]:
    estimates = Estimates(study)
    grids = tables(study, estimates)
    corpus = next((name for stem, name in CORPORA.items() if study.experiment.startswith(stem)), "")
    return {
        "table2": _table2(grids["table2"], corpus, published),
        "table3": _table3(grids["table3"], study, corpus, published),
        "table4": _table4(grids["table4"], corpus, published),
        "seeds": _markdown(grids["seeds"]),
        "lambdas": _markdown(grids["adversaries"]),
        "verdict": "".join(
            f"* **{found.question}** {' '.join(found.sentences)}\n"
            for found in verdicts(study, estimates)
        ),
    }


def _table2(grid: Grid, corpus: str, published: Mapping[str, Any]) -> str:
    theirs = published["base_uniform"].get(corpus, {})
    names = {
        "trained": "trained attention",
        "uniform": "uniform attention",
        "reported": "trained attention as Jain & Wallace report it",
    }
    added = [
        [f"{name} ({published['source']})", DASH, theirs[key], DASH]
        for key, name in names.items()
        if key in theirs
    ]
    return _markdown(grid, added)


def _table3(grid: Grid, study: Study, corpus: str, published: Mapping[str, Any]) -> str:
    """Theirs as one more column, a guide to a row."""
    theirs = published["guides"].get(corpus, {})
    if not theirs:
        return _markdown(grid)
    told = [theirs.get(name, DASH) for name in guides(study)]
    rows = [[*row, figure] for row, figure in zip(grid.rows, told, strict=True)]
    return _markdown(Grid(grid.title, [*grid.head, published["source"]], rows, grid.note))


def _table4(grid: Grid, corpus: str, published: Mapping[str, Any]) -> str:
    theirs = published["adversary"].get(corpus)
    if theirs is None:
        return _markdown(grid)
    name = f"best adversary (KL, λ = {theirs['lambda']}; {published['source']})"
    return _markdown(grid, [[name, DASH, theirs["f1"], theirs["tvd"], theirs["js"]]])


def _markdown(grid: Grid, added: list[list[str]] | None = None) -> str:
    """A table with its note; the page has headings of its own."""
    note = f"\n{grid.note}\n" if grid.note else ""
    return markdown_table(grid.head, [*grid.rows, *(added or [])]) + note
