"""Tables of models of transformers from made records, whose runs may be archived later."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kept import page
from tests.report.fake import write_record

findings, mixing, pruthi = map(page, ("findings", "mixing", "pruthi"))
Columns = Mapping[str, np.ndarray]


def write(root: Path, name: str, records: Mapping[str, list[Columns]]) -> Any:
    """An archive with an experiment whose seeds have these columns, by test."""
    for test, of_seeds in records.items():
        for seed, columns in enumerate(of_seeds):
            folder = root / name / f"seed{seed}"
            path = folder / f"records/test/{test}.parquet"
            write_record(path, dict(columns), partial=False, stage="test")
            (folder / "logs/version_0").mkdir(parents=True, exist_ok=True)
            (folder / "logs/version_0/metrics.csv").write_text("epoch,val/loss\n0,1.0\n")
            (folder / "fit.yaml").write_text(f"seed_everything: {seed}\n")
    published = {"pruthi_bert": {x: BERT for x in pruthi.CORPORA}}
    return page("archive").Archive(root, published)


BERT = {
    f"bert_{x}_{y}": {"accuracy": f"0.9{y}", "mass": "0.5"} for x in ("mean", "max") for y in (0, 1)
}
BERT["bert_mean_01"] = {"accuracy": "0.95", "mass": "<1e-5"}


def test_methods_stand_beside_the_last_row(tmp_path: Path) -> None:
    """A method that is .2 above attention on each text is better, one .2 below is worse."""
    random, records = np.random.default_rng(0), {"faithfulness": [], "attribution_cost": []}
    for _ in range(3):
        base = random.normal(0.3, 0.01, 30)
        shift = dict.fromkeys(mixing._NAMES["methods"], 0.0) | {"alti": 0.2, "rollout": -0.2}
        measures = (column for test, column in mixing.MEASURES.values() if test == "faithfulness")
        columns = {f"{x}_{label}": base + y for x in measures for label, y in shift.items()}
        records["faithfulness"].append(columns)
        records["attribution_cost"].append({"cost_alti": np.full(5, 7.0)})
    rows = [*mixing.methods(write(tmp_path, "mixing-snli", records))]
    assert [row["texts"] for row in rows if row["method"] == "open: not run"] == [
        "SST",
        "copied words",
    ]
    by_method = {row["method"]: row for row in rows if row["texts"] == "SNLI"}
    assert by_method.keys() == {*mixing._NAMES["methods"].values()}
    for heading, (test, column) in mixing.MEASURES.items():
        for method, better, less in (("ALTI", "yes", 0.2), ("rollout of attention", "no", -0.2)):
            row = by_method[method]
            if test == "plausibility":
                assert row[heading] == row[f"less attention's#{heading}"] == "–"  # noqa: RUF001
                continue
            label = {"ALTI": "alti"}.get(method, "rollout")
            mean = np.mean([columns[f"{column}_{label}"] for columns in records[test]])
            assert findings.Cell(row[heading]).value == pytest.approx(mean, abs=6e-4)
            assert findings.Cell(row[f"less attention's#{heading}"]).value == pytest.approx(less)
            assert row[f"better by {heading}?"] == better
    assert by_method["ALTI"]["cost"].startswith("7.0")
    said = " ".join(map(str, mixing.sentences(findings.Tables({"mixing_methods": table(rows)}))))
    assert "SNLI" in said
    assert "by deletion ALTI (worse: rollout of attention); by resampling ALTI" in said


def table(rows: list[Any]) -> str:
    made: str = page("tables").table(rows, 3)
    return made


def test_minilm_stands_beside_their_bert(tmp_path: Path) -> None:
    name, label = "pruthi_pronoun_minilm-restricted_1", np.array([0, 1, 1, 0])
    right = [{"label": label, "prediction": np.array(x)} for x in ([0, 1, 1, 0], [0, 1, 1, 1])]
    mass = [{"mass": np.full(4, x), "chance": np.full(4, 0.25)} for x in (0.1, 0.3)]
    tests = {"predictions": right, "impermissible_mass": mass}
    rows = [*pruthi.of_minilm(write(tmp_path, name, tests))]
    assert len(rows) == 15
    (row,) = [row for row in rows if row["seeds"] == "2 of 3"]
    assert [row[x] for x in ("corpus", "flow", "score", "λ")] == [
        "pronoun",
        "restricted",
        "mean",
        "1",
    ]
    assert findings.Cell(row["accuracy"]).value == pytest.approx(0.875)
    assert findings.Cell(row["mass, mean over seeds"]).value == pytest.approx(0.2)
    assert (row["largest seed"], row["chance"]) == ("0.3", 0.25)
    assert (row["published#accuracy"], row["published#mass"]) == ("0.91", "0.5")
    others = [x for x in rows if x is not row]
    assert {x["accuracy"] for x in others} == {"open: not run"}
    assert [x["published#accuracy"] for x in others if x["flow"] == "free"] == [None] * 3


def test_adversaries_of_translations_stand_beside_those_of_a_classifier(tmp_path: Path) -> None:
    folder = tmp_path / "pruthi_sequences-copy-additive_0"
    folder.mkdir()
    lines = ["run,lam,seed,attention_js,prediction_tvd", "a,0.0,1,0.01,0.02", "b,0.17,1,0.4,0.3"]
    (folder / page("honest").ADVERSARIES).write_text("\n".join(lines))
    rows = [*page("translation").adversaries(page("archive").Archive(tmp_path, {}))]
    assert [row["predicted"] for row in rows] == ["copy", "reverse", "flip", "En-De", "SST, LSTM"]
    headings = ("seeds", "JS, λ = 0", "TVD, λ = 0", "JS, λ = 0.17", "TVD, λ = 0.17")
    found = [str(rows[0][x]).removesuffix(f" {findings.NO_INTERVAL}") for x in headings]
    assert found == ["1", "0.010", "0.020", "0.400", "0.300"]
    assert {row["JS, λ = 0.17"] for row in rows[1:]} == {"open: not run"}
