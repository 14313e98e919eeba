"""The tables of each kept study, ours beside the published.

`docs/results/studies/<name>/` holds a study's study.json and study.parquet and nothing else, so
that `attnlight report` reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlight.report.grids import Grid
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import guides
from attnlight.report.study.reading import Study, is_tagging, read_study
from attnlight.report.study.tables import tables
from attnlight.report.study.verdict import verdicts
from results_page import taggers
from results_page.grids import answers, markdown, place
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
        For each study of a classifier `<name>_table2`, `_table3`, `_table4`, `_seeds`, `_lambdas`
        and `_verdict`, for those of taggers what `taggers` says; none where no study is kept.

    Raises:
        InputError: The files of a study are missing or damaged.
    """
    kept = sorted(path.parent for path in folder.glob("*/study.json"))
    of_taggers = [path for path in kept if is_tagging(path)]
    found = taggers.study_blocks(of_taggers, published["chunk_f1"])
    for path in kept:
        if path not in of_taggers:
            blocks = _blocks(read_study(path), published["wiegreffe_pinter"])
            found |= {f"{place(path.name)}_{name}": text for name, text in blocks.items()}
    return found


def _blocks(study: Study, published: Mapping[str, Any]) -> dict[str, str]:
    estimates = Estimates(study)
    grids = tables(study, estimates)
    corpus = next((name for stem, name in CORPORA.items() if study.experiment.startswith(stem)), "")
    return {
        "table2": _table2(grids["table2"], corpus, published),
        "table3": _table3(grids["table3"], study, corpus, published),
        "table4": _table4(grids["table4"], corpus, published),
        "seeds": markdown(grids["seeds"]),
        "lambdas": markdown(grids["adversaries"]),
        "verdict": answers(verdicts(study, estimates)),
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
    return markdown(grid, added)


def _table3(grid: Grid, study: Study, corpus: str, published: Mapping[str, Any]) -> str:
    """Theirs as one more column, a guide to a row."""
    theirs = published["guides"].get(corpus, {})
    if not theirs:
        return markdown(grid)
    told = [theirs.get(name, DASH) for name in guides(study)]
    rows = [[*row, figure] for row, figure in zip(grid.rows, told, strict=True)]
    return markdown(Grid(grid.title, [*grid.head, published["source"]], rows, grid.note))


def _table4(grid: Grid, corpus: str, published: Mapping[str, Any]) -> str:
    theirs = published["adversary"].get(corpus)
    if theirs is None:
        return markdown(grid)
    lam = f"λ = {converted(theirs['lambda'])}, the published λ = {theirs['lambda']} converted"
    name = f"best adversary (KL, {lam}; {published['source']})"
    return markdown(grid, [[name, DASH, theirs["f1"], theirs["tvd"], theirs["js"]]])


def converted(lam: str) -> str:
    """A lambda of Wiegreffe & Pinter on our scale.

    Their loss takes half of the total variation distance of two classes, so that it is half of ours
    at twice the lambda.
    """
    return f"{2 * float(lam):.3g}"
