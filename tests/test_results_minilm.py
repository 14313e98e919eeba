"""The page of MiniLM: its tables against plain means over the records, and its sentences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from attnlight.records import read_record
from tests.kept import DOCS, archived, page

minilm, archive, tables, findings = map(page, ("minilm", "archive", "tables", "findings"))
RECORDS = archived()
NAMES = list(minilm.MODELS)
ARCHIVE = archive.Archive(
    RECORDS, yaml.safe_load((DOCS / "results/published.yaml").read_text("utf-8"))
)
TABLES = {
    name: findings.Tables({"t": tables.table(rows(ARCHIVE), 1)})
    for name, rows in {
        "accuracy": minilm.accuracy,
        "jain_wallace": minilm.jain_wallace,
        "serrano_smith": minilm.serrano_smith,
        "control": minilm.control,
    }.items()
}


def runs(name: str, test: str) -> list[dict[str, Any]]:
    """Columns of a test's records, by seed."""
    folders = sorted((RECORDS / name).glob("seed*"))
    return [dict(read_record(run / f"records/test/{test}.parquet").columns) for run in folders]


def overall(columns: list[Any]) -> float:
    """Mean over seeds of the mean over texts."""
    return float(np.mean([np.nanmean(np.asarray(column, np.float64)) for column in columns]))


def cell(table: str, column: str, name: str) -> Any:
    return TABLES[table].cell("t", column, minilm.MODELS[name])


@pytest.mark.parametrize("name", NAMES)
def test_accuracy(name: str) -> None:
    records = runs(name, "predictions")
    expected = overall([record["prediction"] == record["label"] for record in records])
    assert cell("accuracy", "accuracy", name).value == pytest.approx(expected, abs=5e-4)
    assert len(records) == cell("accuracy", "seeds", name).count


@pytest.mark.parametrize("name", NAMES)
def test_epochs_are_those_of_the_highest_accuracy(name: str) -> None:
    logs = sorted((RECORDS / name).glob("seed*/logs/version_0/metrics.csv"))
    curves = [pd.read_csv(path)["val/accuracy"].dropna().to_numpy() for path in logs]
    said = TABLES["accuracy"].rows("t", minilm.MODELS[name])[0]["epoch chosen"]
    assert said == " / ".join(f"{curve.argmax() + 1} of {len(curve)}" for curve in curves)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("heading", "test", "column"),
    [
        ("tau with gradient", "importance_correlation", "tau_attention_input_gradient"),
        ("tau with leave-one-out", "importance_correlation", "tau_attention_loo"),
        ("tau of the two importances", "importance_correlation", "tau_input_gradient_loo"),
        ("median TVD, shuffled", "attention_permutation", "median_tvd"),
        ("decisions flipped, shuffled", "attention_permutation", "flip_rate"),
        ("worst JS", "adversarial_attention", "worst_js"),
        ("of what is possible", "adversarial_attention", "worst_share"),
    ],
)
def test_jain_wallace(name: str, heading: str, test: str, column: str) -> None:
    expected = overall([record[column] for record in runs(name, test)])
    found = cell("jain_wallace", heading, name)
    assert found.value == pytest.approx(expected, abs=6e-4)
    assert found.low <= found.value <= found.high


def test_models_were_tested_on_the_same_texts() -> None:
    for test in minilm.COLUMNS:
        indices = [list(record["index"]) for name in NAMES for record in runs(name, test)]
        assert all(index == indices[0] for index in indices)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranking", ["attention", "gradient", "random_first", "minimal"])
def test_removed_until_the_decision_flips(name: str, ranking: str) -> None:
    expected = []
    for record in runs(name, "decision_flip"):
        texts = []
        for place, length in enumerate(record["length"]):
            if length > 1:
                never = record[f"never_flips_{ranking}"][place] == 1
                texts.append(1.0 if never else record[f"removed_fraction_{ranking}"][place])
        expected.append(np.array(texts))
    words = {"random_first": "random", "minimal": "minimum"}.get(ranking, ranking)
    found = cell("serrano_smith", f"removed, {words}", name)
    if ranking == "minimal" and name == "minilm_last":  # not affine: no smallest set is known
        assert np.isnan(found.value)
    else:
        assert found.value == pytest.approx(overall(expected), abs=6e-4)


@pytest.mark.parametrize("ablation", ["uniform", "shuffled", "off"])
def test_control(ablation: str) -> None:
    records = runs("minilm_last", "head_ablation")
    last, every, flips = (
        overall([record[f"{column}_{ablation}"] for record in records])
        for column in ("tvd_last", "tvd_all", "flip_rate_head")
    )
    for heading, expected in {
        "TVD, last layer": last,
        "TVD, all layers": every,
        "decisions flipped, one head, mean": flips,
        "TVD, all less last": every - last,
    }.items():
        found = TABLES["control"].cell("t", heading, ablation)
        assert found.value == pytest.approx(expected, abs=6e-4)


def test_nothing_is_said_without_runs(tmp_path: Path) -> None:
    bare = archive.Archive(tmp_path, {})
    for rows in (minilm.accuracy, minilm.jain_wallace, minilm.serrano_smith, minilm.control):
        assert list(rows(bare)) == []


def test_names_the_commands() -> None:
    text = (DOCS / "results/minilm.md").read_text("utf-8")
    for plan in re.findall(r"attnlight study (configs/studies/\w+\.yaml)", text):
        assert (DOCS.parent / plan).is_file()
    assert {f"configs/studies/{name}.yaml" in text for name in minilm.STUDIES} == {True}
