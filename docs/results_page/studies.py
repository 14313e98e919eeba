"""The tables of each kept study, ours beside the published.

`docs/results/studies/<name>/` holds a study's study.json and study.parquet and nothing else, so
that `attnlight report` reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlight.report.study.conditions import (
    exclusivity_tables,
    exclusivity_verdicts,
    read_conditions,
)
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.groups import guides
from attnlight.report.study.tables import Tables
from attnlight.report.study.verdict import Verdict, verdicts
from attnlight.report.tables import Table, markdown_table
from results_page.tables import DASH

FOLDER = "studies"  # below docs/results
# The published corpus of the experiments whose name starts so.
CORPORA = {"sst_": "sst", "imdb_": "imdb", "20_newsgroups_sports_": "20_newsgroups_sports"}
# What the curves of a study's conditions are of.
CURVES = (
    *("run", "index", "tokens", "choices", "correct", "nll_gold"),
    *("attention_js_share", "prediction_tvd"),
)
_TABLE2 = {
    "trained": "trained attention",
    "uniform": "uniform attention",
    "reported": "trained attention as Jain & Wallace report it",
}


def study_blocks(folder: Path, published: Mapping[str, Any]) -> dict[str, str]:
    """Tables and sentences of every kept study by the name of their place on the page.

    Args:
        folder: docs/results/studies; `<study>-<condition>` is one condition of a study.
        published: docs/results/published.yaml.

    Returns:
        For each study `<name>_<table>` and `<name>_verdict`, and the same once for the conditions
        of a study together; none where no study is kept.

    Raises:
        InputError: The files of a study are missing or damaged.
    """
    found: dict[str, str] = {}
    compared: dict[str, dict[str, Path]] = {}
    for path in sorted(path.parent for path in folder.glob("*/study.json")):
        study = read_study(path)
        condition = study.facts["options"]
        if condition is None:
            found |= _blocks(path.name, study, published)
        else:
            name = path.name.removesuffix(f"-{condition}")
            compared.setdefault(name, {})[condition] = path
    for name, conditions in compared.items():
        held, absent = read_conditions(conditions)
        found |= _placed(name, exclusivity_tables(held), exclusivity_verdicts(held, absent))
    return found


def _blocks(name: str, study: Study, published: Mapping[str, Any]) -> dict[str, str]:
    estimates = Estimates(study)
    grids = {
        {"adversaries": "lambdas"}.get(stem, stem) if not study.losses else stem: grid
        for stem, grid in Tables(estimates).all().items()
    }
    of_corpus = _of_corpus(study, published["wiegreffe_pinter"])
    if "table3" in grids and of_corpus["guides"]:
        grids["table3"] = _beside(grids["table3"], study, of_corpus)
    added = _of_pinter(of_corpus) | _of_yang(published["chunk_f1"], study.words.quality, grids)
    return _placed(name, grids, verdicts(estimates), added)


def _placed(
    study: str,
    grids: Mapping[str, Table],
    found: Sequence[Verdict],
    added: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> dict[str, str]:
    """Tables with their notes, published rows below ours, and questions with their answers."""
    blocks = {}
    for name, grid in grids.items():
        rows = [*grid.rows, *(added or {}).get(name, [])]
        blocks[name] = markdown_table(grid.head, rows) + (f"\n{grid.note}\n" if grid.note else "")
    said = [f"* **{one.question}** {' '.join(one.sentences)}\n" for one in found]
    blocks["verdict"] = "".join(said)
    return {f"{study.replace('-', '_')}_{name}": text for name, text in blocks.items()}


def _of_corpus(study: Study, published: Mapping[str, Any]) -> dict[str, Any]:
    """What Wiegreffe & Pinter published of a study's corpus."""
    corpus = next((name for stem, name in CORPORA.items() if study.experiment.startswith(stem)), "")
    tables = ("base_uniform", "guides", "adversary")
    return {"source": published["source"]} | {t: published[t].get(corpus, {}) for t in tables}


def _of_pinter(theirs: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Rows for their tables 2 and 4."""
    table2 = [
        [f"{name} ({theirs['source']})", DASH, theirs["base_uniform"][key], DASH]
        for key, name in _TABLE2.items()
        if key in theirs["base_uniform"]
    ]
    best = theirs["adversary"]
    if not best:
        return {"table2": table2}
    lam = f"λ = {converted(best['lambda'])}, the published λ = {best['lambda']} converted"
    name = f"best adversary (KL, {lam}; {theirs['source']})"
    return {"table2": table2, "table4": [[name, DASH, best["f1"], best["tvd"], best["js"]]]}


def _beside(grid: Table, study: Study, theirs: Mapping[str, Any]) -> Table:
    """Table 3 with theirs as one more column, a guide to a row."""
    told = [theirs["guides"].get(name, DASH) for name in guides(study)]
    rows = [[*row, figure] for row, figure in zip(grid.rows, told, strict=True)]
    return Table.of(grid.title, [*grid.head, theirs["source"]], rows, grid.note)


def _of_yang(
    published: Mapping[str, Any], quality: str, grids: Mapping[str, Table]
) -> dict[str, list[list[str]]]:
    """Rows of chunk F1 for the models and adversaries of a tagger."""
    probes = [("a probe that ignores its attention", f1) for f1 in published["probes"]]
    lambdas = published["adversary"].items()
    theirs = {
        "models": [("trained attention", published["base"]), *probes],
        "adversaries": [(f"KL (released scale), λ = {lam:g}", f1) for lam, f1 in lambdas],
    }
    return {
        table: [
            [
                f"{name} (Yang 2020)",
                *(f1 if h == "chunk F1" else DASH for h in grids[table].head[1:]),
            ]
            for name, f1 in rows
        ]
        for table, rows in theirs.items()
        if table in grids and quality == "chunk F1"
    }


def converted(lam: str) -> str:
    """A lambda of Wiegreffe & Pinter on our scale.

    Their loss takes half of the total variation distance of two classes, so that it is half of ours
    at twice the lambda.
    """
    return f"{2 * float(lam):.3g}"
