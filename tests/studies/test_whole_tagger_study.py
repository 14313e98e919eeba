"""A small study of a real tagger from end to end, its runs in this process."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from attnlight.__main__ import main
from attnlight.records import read_record
from attnlight.studies import executor
from tests.commands import CONFIGS
from tests.studies.sentences import collected, expected, tokens
from tests.tasks.tagged import FILES, SEES, SMALL, written

pytestmark = pytest.mark.slow
STUDY: dict[str, Any] = {
    "trainer": str(CONFIGS / "trainer.yaml"),
    "experiment": "tiny_tagger.yaml",
    "options": {"trainer": {"max_epochs": 3, "accelerator": "cpu", "devices": 1}},
    "base": {"seeds": [0]},
    "uniform": {"seeds": [0], "heads": [1]},
    "guides": {"names": ["adversary"], "contexts": ["tokens", "query_key"], "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0, 0.1], "compat": [2.1]}, "seeds": [1]},
}


class Here:
    """A process of a study that is this one, and over once it is started."""

    def __init__(self, words: Sequence[str], *, stdout: IO[bytes], **_: Any) -> None:
        said, before = io.StringIO(), dict(os.environ)
        with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["attnlight"])
            try:
                self.returncode = executor.run_commands(words[3:])
            finally:
                os.environ.clear()
                os.environ.update(before)
                stdout.write(said.getvalue().encode())

    def poll(self) -> int:
        return self.returncode


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    corpus = {"path": str(written(root / "chunks")), "batch_size": 8, **FILES, **SEES}
    classes = {
        "model": "attnlight.tasks.ChunkTagger",
        "data": "attnlight.datamodules.ChunkingDataModule",
    }
    inits = {"model": SMALL | {"learning_rate": 0.02}, "data": corpus}
    experiment = {k: {"class_path": classes[k], "init_args": inits[k]} for k in classes}
    (root / "tiny_tagger.yaml").write_text(yaml.safe_dump(experiment))
    (root / "tiny.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(executor, "Popen", Here)
        patch.setattr("attnlight.report.study.write_study", lambda folder: [])
        assert main(["study", "tiny.yaml", f"--root={root}"]) == 0
    return root / "tiny"


def about(study: Path) -> dict[str, Any]:
    return {run["name"]: run for run in json.loads((study / "study.json").read_text())["runs"]}


def test_rows_are_what_a_loop_finds(study: Path) -> None:
    held = json.loads((study / "study.json").read_text())
    assert (held["task"], held["target"], held["readout"], held["pos"]) == (
        "tagging",
        "tokens",
        "study",
        True,
    )
    found = collected(study)
    assert found.keys() == about(study).keys()
    for name, run in about(study).items():
        base = None if run["base"] is None else study / run["base"] / "records/test"
        sentences = list(tokens(study / name / "records/test", base))
        assert len(sentences) == 21
        for row, (index, sentence) in zip(found[name], sentences, strict=True):
            wanted = expected(sentence, held["classes"], base=base is None, whole=True)
            for column, value in wanted.items():
                close = value if value is None else pytest.approx(value, rel=1e-5, abs=1e-6)
                assert row[column] == close, (name, index, column)


def test_validation_is_what_fit_logged_of_its_best_epoch(study: Path) -> None:
    for name, run in about(study).items():
        logged = [
            row
            for path in (study / name / "logs").glob("version_*/metrics.csv")
            for row in csv.DictReader(path.open())
        ]
        (best, *_) = [row for row in logged if row["epoch"] == str(run["epoch"]) and row["val/f1"]]
        assert run["epochs"] == 3
        for measure in ("f1", "accuracy"):
            assert run["validation"][measure] == pytest.approx(float(best[f"val/{measure}"]))
        if run["role"] in ("base", "uniform", "guide"):
            assert run["validation"]["nll_gold"] == pytest.approx(float(best["val/loss"]), rel=1e-5)
        elif run["lambda"] == 0:
            assert run["validation"]["nll_base"] == pytest.approx(float(best["val/loss"]), rel=1e-5)
        assert not list((study / name / "records/val").glob("*-*.parquet")), "of one epoch alone"


def test_runs_are_what_the_plan_says(study: Path) -> None:
    def told(name: str) -> dict[str, Any]:
        config = yaml.safe_load((study / name / "fit.yaml").read_text())
        return {**config["model"]["init_args"], "task": config["model"]["class_path"]}

    assert told("uniform-h1-s0")["head"] == 1
    assert told("guide-adversary-tokens-s0")["context"] == "tokens"
    assert told("guide-adversary-query_key-s0")["query_key"] is True
    compat = told("adversary-compat-l2.1-s1")
    assert (compat["compat"], compat["attention_term"], compat["lambda_"]) == (True, "kl", 2.1)
    assert not told("adversary-kl-l0.1-s1")["compat"]
    runs = about(study)
    assert runs["guide-adversary-tokens-s0"]["told_by"] == "adversary-kl-l0.1-s1"
    assert sorted(runs["adversary-kl-l0-s1"]["heads"]) == [0, 1]
    record = read_record(study / "uniform-s0/records/test/base_divergence.parquet").columns
    assert all(math.isnan(tau) for tau in record["attention_tau"]), (
        "uniform attention ranks nothing"
    )
    assert sum(row["tau_rows"] for row in collected(study)["uniform-s0"]) == 0
    assert sum(row["tau_rows"] for row in collected(study)["uniform-h1-s0"]) > 0


def test_log_tells_each_command(study: Path) -> None:
    lines = (study / "logs/uniform-s0.log").read_text().splitlines()
    verbs = [line.split()[2] for line in lines if line.startswith("$ attnlight")]
    assert verbs == ["fit", "validate", "test"]
