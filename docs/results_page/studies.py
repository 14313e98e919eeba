"""The tables of each kept study, ours beside the published.

`docs/results/studies/<name>/` holds a study's study.json and study.parquet and nothing else, so
that `attnlight report` reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlight.report.study import conditions
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.groups import guides
from attnlight.report.study.tables import study_tables
from attnlight.report.study.verdict import verdicts
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
    blocks: dict[str, str] = {}
    compared: dict[str, dict[str, Path]] = {}
    for path in sorted(path.parent for path in folder.glob("*/study.json")):
        study = read_study(path)
        condition = study.facts["options"]
        if condition is None:
            estimates = Estimates(study)
            tables = with_published(study, study_tables(estimates), published)
            blocks |= placed(path.name, tables, verdicts(estimates))
        else:
            name = path.name.removesuffix(f"-{condition}")
            compared.setdefault(name, {})[condition] = path
    for name, folders in compared.items():
        collected = conditions.read_conditions(folders)
        answers = conditions.exclusivity_verdicts(collected)
        blocks |= placed(name, conditions.exclusivity_tables(collected), answers)
    return blocks


def placed(
    name: str, tables: Mapping[str, Table], found: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Tables with their notes, and questions with their answers, by the name of their place."""
    blocks = {
        stem: markdown_table(one.head, one.rows) + (f"\n{one.note}\n" if one.note else "")
        for stem, one in tables.items()
    }
    answers = [f"* **{question}** {' '.join(said)}\n" for question, said in found.items()]
    blocks["verdict"] = "".join(answers)
    return {f"{name.replace('-', '_')}_{stem}": text for stem, text in blocks.items()}


def with_published(
    study: Study, tables: Mapping[str, Table], published: Mapping[str, Any]
) -> dict[str, Table]:
    """The tables of a study by the end of their place's name, with the published figures.

    Rows of Wiegreffe & Pinter for the study's corpus, and of Yang for taggers, stand below ours;
    the former's guides are one more column.
    """
    pinter, source = published["wiegreffe_pinter"], published["wiegreffe_pinter"]["source"]
    corpus = next((name for stem, name in CORPORA.items() if study.experiment.startswith(stem)), "")
    uniform, given, best = (
        pinter[part].get(corpus, {}) for part in ("base_uniform", "guides", "adversary")
    )
    below = {
        "table2": [
            [f"{name} ({source})", DASH, uniform[key], DASH]
            for key, name in _TABLE2.items()
            if key in uniform
        ]
    }
    if best:
        # They take half of the total variation distance of two classes, so that their loss is half
        # of ours at twice the lambda.
        lam = f"{2 * float(best['lambda']):.3g}, the published λ = {best['lambda']} converted"
        name = f"best adversary (KL, λ = {lam}; {source})"
        below["table4"] = [[name, DASH, best["f1"], best["tvd"], best["js"]]]
    for stem, figures in published["chunk_f1"].items() if study.words.quality == "chunk F1" else ():
        head = tables[stem].head[1:]
        below[stem] = [
            [f"{name} (Yang 2020)", *(f1 if word == "chunk F1" else DASH for word in head)]
            for name, column in figures.items()
            for f1 in column
        ]
    found = {}
    for stem, one in tables.items():
        head, rows = one.head, [*one.rows, *below.get(stem, [])]
        if stem == "table3" and given:
            figures = [given.get(name, DASH) for name in guides(study).get(None, {})]
            rows = [[*row, f1] for row, f1 in zip(rows, figures, strict=True)]
            head = [*head, source]
        place = "lambdas" if stem == "adversaries" and not study.losses else stem
        found[place] = Table.of(one.title, head, rows, one.note)
    return found
