"""The tables of each archived study, with the published figures.

`studies/<name>/`, unpacked from docs/results by `packed`, contains only a study's study.json and
study.parquet, so that `attnlight report` can read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from attnlight.figures.tables import Table, markdown_table
from attnlight.report.study import conditions
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import draw_tradeoff
from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.groups import guides
from attnlight.report.study.tables import study_tables
from attnlight.report.study.verdict import verdicts
from attnlight.storage.files import read_yaml
from results_page import NAMES
from results_page.tables import DASH, Row

FOLDER = "studies"  # below docs/results
_NAMES = NAMES["studies"]
CURVES: list[str] = _NAMES["curves"]


def draw_chunking(folder: Path, published: Path) -> Figure:
    """The losses of chunking's adversaries by divergence; the published curve is laid over where KL is.

    Args:
        folder: The archived study.
        published: docs/results/published.yaml, with KL per element and loss by lambda.
    """
    study = read_study(folder)
    curve = read_yaml(published)["chunk_curve"]
    points = [(float(x["kl"]), float(x["nll"])) for x in curve.values()]
    first, *_, last = (name.partition("_")[2] for name in curve)
    published_curve = {f"Yang (2020), λ = {first} to {last}": points}
    return draw_tradeoff(Estimates(study), study.bases[0], published_curve)


def study_blocks(folder: Path, published: Mapping[str, Any]) -> dict[str, str]:
    """Tables and sentences of every archived study by the name of their place on the page.

    Places are `<study>_<table>` and `<study>_verdict`; the conditions of a study, archived as
    `<study>-<condition>`, share one set.

    Raises:
        InputError: The files of a study are missing or damaged.
    """
    # Name, tables and answers of each study, and of the conditions of one together.
    reports: list[tuple[str, Mapping[str, Table], Mapping[str, Sequence[str]]]] = []
    compared: dict[str, dict[str, Path]] = {}
    for path in sorted(path.parent for path in folder.glob("*/study.json")):
        study = read_study(path)
        if (condition := study.facts["options"]) is None:
            estimates = Estimates(study)
            tables = with_published(study, study_tables(estimates), published)
            reports.append((path.name, tables, verdicts(estimates)))
        else:
            compared.setdefault(path.name.removesuffix(f"-{condition}"), {})[condition] = path
    for name, folders in compared.items():
        found = conditions.read_conditions(folders)
        answers = conditions.exclusivity_verdicts(found)
        reports.append((name, conditions.exclusivity_tables(found), answers))
    blocks: dict[str, str] = {}
    for name, shown, given in reports:
        place = name.replace("-", "_")
        for stem, table in shown.items():
            note = f"\n{table.note}\n" if table.note else ""
            blocks[f"{place}_{stem}"] = markdown_table(table.head, table.rows) + note
        verdict = (f"* **{question}** {' '.join(answer)}\n" for question, answer in given.items())
        blocks[f"{place}_verdict"] = "".join(verdict)
    return blocks


def with_published(
    study: Study, tables: Mapping[str, Table], published: Mapping[str, Any]
) -> dict[str, Table]:
    """The tables of a study by the suffix of their place's name, with the published figures.

    Rows of Wiegreffe & Pinter for the study's corpus, and of Yang for taggers, are below ours; the
    guides of the former are a further column.
    """
    pinter, quality = published["wiegreffe_pinter"], study.words.quality
    source = pinter["source"]
    corpus = next(
        (name for stem, name in _NAMES["corpora"].items() if study.experiment.startswith(stem)), ""
    )
    uniform, guide_f1, best = (
        pinter[part].get(corpus, {}) for part in ("base_uniform", "guides", "adversary")
    )
    below: list[tuple[str, str, Row]] = [  # the table, the first cell and the others by heading
        ("table2", f"{name} ({source})", {quality: uniform[key]})
        for key, name in _NAMES["table2"].items()
        if key in uniform
    ]
    if best:
        # Their loss has half of the total variation distance of two classes: their lambda
        # corresponds to twice that value here.
        lam = f"{2 * float(best['lambda']):.3g}, the published λ = {best['lambda']} converted"
        figures = {quality: best["f1"], "TVD": best["tvd"], "JS": best["js"]}
        below.append(("table4", f"best adversary (KL, λ = {lam}; {source})", figures))
    for stem, models in published["chunk_f1"].items() if quality == "chunk F1" else ():
        for name, column in models.items():
            below += [(stem, f"{name} (Yang 2020)", {quality: f1}) for f1 in column]
    result = {}
    for stem, table in tables.items():
        frame = pd.DataFrame(table.rows, columns=table.head)
        if stem == "table3" and guide_f1:
            frame[source] = [guide_f1.get(name, DASH) for name in guides(study).get(None, {})]
        for place, label, figures in below:
            if place == stem:
                frame.loc[len(frame)] = [label, *(figures.get(x, DASH) for x in frame.columns[1:])]
        place = "lambdas" if stem == "adversaries" and not study.losses else stem
        result[place] = table._replace(head=[*frame.columns], rows=frame.to_numpy().tolist())
    return result
