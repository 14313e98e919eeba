"""A small study of real runs, from end to end, and killed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from attnlight.records import read_record
from tests.commands import CONFIGS, start

pytestmark = pytest.mark.slow
SMALL: dict[str, Any] = {
    "trainer": str(CONFIGS / "trainer.yaml"),
    "experiment": str(CONFIGS / "experiments/planted_bilstm.yaml"),
    "options": {
        "data": {"train_size": 300, "validation_size": 101, "test_size": 111},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "devices": 1},
    },
    "base": {"seeds": [0], "options": {"model": {"embedding_size": 16, "hidden_size": 8}}},
    "adversaries": {"lambdas": {"kl": [0.01]}, "seeds": [1]},
}
WHOLE = SMALL | {
    "uniform": {"seeds": [0]},
    "seeds": {"seeds": [1]},
    "guides": {"names": ["adversary"], "seeds": [0]},
}


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a study, which on a busy machine takes its time."""
    output, _ = process.communicate(timeout=3600)
    assert process.returncode == 0, output[-6000:]


def rows(folder: Path) -> pa.Table:
    return pq.read_table(folder / "study.parquet")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    file = write(folder / "whole.yaml", WHOLE)
    finish(
        start(["-m", "attnlight", "study", str(file), f"--root={folder}", "--jobs=2"], cwd=folder)
    )
    return folder / "whole"


def test_study_from_end_to_end(undisturbed: Path) -> None:
    study = json.loads((undisturbed / "study.json").read_text())
    runs = {run["name"]: run for run in study["runs"]}
    assert {run["state"] for run in runs.values()} == {"finished"}
    assert [run["role"] for run in study["runs"]] == [
        "base",
        "uniform",
        "seed",
        "adversary",
        "guide",
    ]
    assert study["classes"] == ["bad", "good"]
    assert runs["guide-adversary-s0"]["told_by"] == study["selected"]["run"]
    table = rows(undisturbed)
    assert len(table) == 111 * len(runs)
    own = table.filter(pc.equal(table["run"], "seed-b0-s1"))
    record = read_record(undisturbed / "seed-b0-s1/records/test/base_divergence.parquet")
    js = record.columns["attention_js"].astype(np.float32)
    np.testing.assert_array_equal(own["attention_js"], js)
    for name in runs:
        config = yaml.safe_load((undisturbed / name / "fit.yaml").read_text())
        assert (config["experiment"], config["run"]) == ("whole", name)
        assert config["seed_everything"] == runs[name]["seed"]
    assert any((undisturbed / "report").iterdir())


def test_validation_is_what_the_run_logged(undisturbed: Path) -> None:
    import csv

    for run in json.loads((undisturbed / "study.json").read_text())["runs"]:
        (logged,) = (undisturbed / run["name"] / "logs").glob("version_0/metrics.csv")
        lines = list(csv.DictReader(logged.open()))
        (line,) = (
            row for row in lines if row["epoch"] == str(run["epoch"]) and row.get("val/accuracy")
        )
        for ours, theirs in (
            ("accuracy", "val/accuracy"),
            ("f1", "val/f1_positive"),
            ("macro_f1", "val/f1_macro"),
            ("attention_js", "val/base_divergence/attention_js"),
            ("prediction_tvd", "val/base_divergence/prediction_tvd"),
        ):
            if run["validation"][ours] is not None:
                assert run["validation"][ours] == pytest.approx(float(line[theirs]), rel=1e-5)


def test_killed_study_ends_with_the_same_table(undisturbed: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "killed.yaml", SMALL)
    command = ["-m", "attnlight", "study", str(file), f"--root={tmp_path}"]
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import attnlight.cli"], check=True)
    startup = time.monotonic() - began  # of each process: moments in and between all of them
    moments = random.Random(0)
    for attempt in range(3):
        process = start(command, cwd=tmp_path)
        time.sleep(startup * moments.uniform(0.5, 4))
        if attempt == 1:  # the study alone: its runs must not go on without it
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    # at once: the lock is free as soon as the killed one's runs have ended
    finish(start(command, cwd=tmp_path))
    killed, whole = rows(tmp_path / "killed"), rows(undisturbed)
    names = set(killed["run"].to_pylist())
    assert names == {"base-s0", "adversary-kl-l0.01-s1"}
    same = whole.filter(pc.is_in(whole["run"], pa.array(sorted(names))))
    assert killed.drop(["run"]).equals(same.drop(["run"]))
    assert killed["run"].to_pylist() == same["run"].to_pylist()


def test_run_ends_with_its_study(tmp_path: Path) -> None:
    """Without a study's end in sight: a process that waits, started as a study starts its runs."""
    if sys.platform != "linux":
        pytest.skip("the kernel ends a child with its parent on Linux")
    child = (
        "import time; from attnlight.studies.executor import end_with_parent; "
        "end_with_parent(); print('up', flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {child!r}])",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    parent.kill()
    began = time.monotonic()
    assert parent.stdout.read() == "", "the pipe closes when the child is gone"
    assert time.monotonic() - began < 30
