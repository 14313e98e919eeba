"""A study of a problem of the user's own: nothing but its file and two YAML files are written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from tests.commands import CONFIGS, start
from tests.tasks.test_own_problem import OWN

pytestmark = pytest.mark.slow
STUDY = {
    "trainer": str(CONFIGS / "trainer.yaml"),
    "experiment": "own.yaml",
    "options": {"trainer": {"accelerator": "cpu", "devices": 1}},
    "base": {"seeds": [0]},
    "uniform": {"seeds": [0]},
    "seeds": {"seeds": [1]},
    "guides": {"names": ["shuffled", "adversary"], "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0.1]}, "seeds": [0]},
}


def test_study_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN))
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(STUDY))
    command = ["-m", "attnlight", "study", "toy.yaml", "--root=runs"]
    process = start(command, cwd=tmp_path, PYTHONPATH=str(CONFIGS.parent))  # where `tests` is
    output, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, output[-6000:]

    folder = tmp_path / "runs/toy"
    study = json.loads((folder / "study.json").read_text())
    assert {run["state"] for run in study["runs"]} == {"finished"}
    assert study["problem"]["instance"] == "sentence"
    guided = next(run for run in study["runs"] if run["guide"] == "adversary")
    assert guided["told_by"] == "adversary-kl-l0.1-s0"
    with (folder / "report/estimates.csv").open(newline="") as file:
        rows = {(row["group"], row["measure"]): row for row in csv.DictReader(file)}
    for group in ("base", "seeds", "uniform", "adversary-kl-0.1"):
        assert 0 < float(rows[group, "accuracy"]["mean"]) <= 1
    assert float(rows["uniform", "attention_js"]["mean"]) > 0
    page = (folder / "report/index.html").read_text()
    assert "accuracy" in page
    assert "<table" in page
