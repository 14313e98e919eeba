"""Small studies of real runs: of texts (killed again and again), tokens and one's own problem."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from attnlight.__main__ import main
from attnlight.studies import cli
from tests.commands import CONFIGS, ROOT, start
from tests.studies.fake import Here
from tests.tasks.tagged import FILES, SEES, SMALL, written
from tests.tasks.test_own_problem import OWN

pytestmark = pytest.mark.slow
ON_CPU = {"accelerator": "cpu", "devices": 1}
PAIR: dict[str, Any] = {
    "trainer": str(CONFIGS / "trainer.yaml"),
    "experiment": str(CONFIGS / "experiments/planted_bilstm.yaml"),
    "options": {
        "data": {"train_size": 300, "validation_size": 101, "test_size": 111},
        "trainer": {"max_epochs": 2, **ON_CPU},
    },
    "base": {"seeds": [0], "options": {"model": {"net": {"embedding_size": 16, "hidden_size": 8}}}},
    "adversaries": {"lambdas": {"kl": [0.01]}, "seeds": [1]},
}
OTHERS = {"uniform": {"seeds": [0]}, "seeds": {"seeds": [1]}}
STUDIES: dict[str, dict[str, Any]] = {
    "texts": PAIR | OTHERS | {"guides": {"names": ["adversary"], "seeds": [0]}},
    "tokens": {
        "trainer": PAIR["trainer"],
        "experiment": "experiment.yaml",
        "options": {"trainer": {"max_epochs": 3, **ON_CPU}},
        "base": {"seeds": [0]},
        "uniform": {"seeds": [0], "heads": [1]},
        "guides": {"names": ["adversary"], "contexts": ["tokens", "query_key"], "seeds": [0]},
        "adversaries": {"lambdas": {"kl": [0, 0.1], "released": [2.1]}, "seeds": [1]},
    },
    "sentences": {
        "trainer": PAIR["trainer"],
        "experiment": "experiment.yaml",
        "options": {"trainer": ON_CPU},
        "base": {"seeds": [0]},
        "guides": {"names": ["shuffled", "adversary"], "seeds": [0]},
        "adversaries": {"lambdas": {"kl": [0.1]}, "seeds": [0]},
    }
    | OTHERS,
}


def begin(folder: Path, content: dict[str, Any], *options: str) -> subprocess.Popen[str]:
    """Start a study in a folder; `tests` is found from there."""
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    command = ["-m", "attnlight", "study", "study.yaml", "--root=.", *options]
    return start(command, cwd=folder, PYTHONPATH=str(ROOT))


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a study, which on a busy machine takes its time."""
    output, _ = process.communicate(timeout=3600)
    assert process.returncode == 0, output[-6000:]


def experiment_of(name: str, folder: Path) -> dict[str, Any]:
    """The experiment of a study, whose corpus is made where it has none."""
    if name == "sentences":
        return OWN
    corpus = {"path": str(written(folder / "chunks")), "batch_size": 8, **FILES, **SEES}
    kinds = {"model": "tasks.ChunkTagger", "data": "datamodules.ChunkingDataModule"}
    options = {"model": {"net": SMALL, "optimizer": {"learning_rate": 0.02}}, "data": corpus}
    return {
        part: {"class_path": f"attnlight.{kind}", "init_args": options[part]}
        for part, kind in kinds.items()
    }


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a study that is done without disturbance, once it is asked for."""

    @cache
    def study(name: str) -> Path:
        root = tmp_path_factory.mktemp(name)
        if name != "texts":
            experiment = experiment_of(name, root)
            (root / "experiment.yaml").write_text(yaml.safe_dump(experiment))
        if name != "tokens":
            finish(begin(root, STUDIES[name], f"--jobs={2 if name == 'texts' else 1}"))
            return root / "study"
        (root / "study.yaml").write_text(yaml.safe_dump(STUDIES[name], sort_keys=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            patch.setattr(cli, "ProcessExecutor", Here)
            patch.setattr("attnlight.report.study.write_study", lambda folder: [])
            assert main(["study", "study.yaml", "--root=."]) == 0
        return root / "study"

    return study


def runs_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in json.loads((folder / "study.json").read_text())["runs"]}


def configured(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / name / "fit.yaml").read_text())
    return content


@pytest.mark.parametrize(
    ("name", "instance", "roles"),
    [
        ("texts", "text", "base uniform seed adversary guide"),
        ("tokens", "token", "base uniform uniform adversary adversary adversary guide guide"),
        ("sentences", "sentence", "base uniform seed guide adversary guide"),
    ],
)
def test_study_from_end_to_end(
    done: Callable[[str], Path], name: str, instance: str, roles: str
) -> None:
    study, runs = json.loads((done(name) / "study.json").read_text()), runs_of(done(name))
    assert study["problem"]["instance"] == instance
    assert [run["role"] for run in runs.values()] == roles.split()
    assert {run["state"] for run in runs.values()} == {"finished"}
    guided = [run["told_by"] for run in runs.values() if run["guide"] == "adversary"]
    assert set(guided) == {study["selected"]["run"]}
    for run in runs.values():
        config = configured(done(name), run["name"])
        assert (config["experiment"], config["run"]) == ("study", run["name"])
        assert config["seed_everything"] == run["seed"]
        lines = (done(name) / f"logs/{run['name']}.log").read_text().splitlines()
        verbs = [line.split()[2] for line in lines if line.startswith("$ attnlight")]
        assert verbs == ["fit", *([] if name == "texts" else ["validate"]), "test"]
    if name != "tokens":
        with (done(name) / "report/estimates.csv").open(newline="") as file:
            rows = {(row["group"], row["measure"]): row for row in csv.DictReader(file)}
        for group in ("base", "seeds", "uniform"):
            assert 0 < float(rows[group, "accuracy"]["mean"]) <= 1
        assert float(rows["uniform", "attention_js"]["mean"]) > 0
        assert "<table" in (done(name) / "report/index.html").read_text()


@pytest.mark.parametrize("name", ["texts", "tokens"])
def test_validation_is_what_fit_logged_of_its_best_epoch(
    done: Callable[[str], Path], name: str
) -> None:
    logged_as = {
        "accuracy": "val/accuracy",
        "f1": "val/f1_positive" if name == "texts" else "val/f1",
        "macro_f1": "val/f1_macro",
    }
    if name == "texts":  # of a tagger the best epoch alone is compared with the base, after `fit`
        divergence = ("attention_js", "prediction_tvd")
        logged_as |= {measure: f"val/base_divergence/{measure}" for measure in divergence}
    for run in runs_of(done(name)).values():
        logs = (done(name) / run["name"] / "logs").glob("version_*/metrics.csv")
        lines = [row for path in logs for row in csv.DictReader(path.open())]
        of_epoch = [row for row in lines if row["epoch"] == str(run["epoch"])]
        best = next(row for row in of_epoch if row.get("val/accuracy"))
        names = dict(logged_as)
        if name == "tokens" and (run["role"] != "adversary" or run["lambda"] == 0):
            loss = "nll_base" if run["role"] == "adversary" else "nll_gold"
            names[loss] = "val/loss"
        for ours, theirs in names.items():
            if run["validation"].get(ours) is not None:
                assert run["validation"][ours] == pytest.approx(float(best[theirs]), rel=1e-5)
        if name == "tokens":
            assert run["epochs"] == 3
            kept = (done(name) / run["name"] / "records/val").glob("*-*.parquet")
            assert not list(kept), "of one epoch alone"


def test_killed_study_ends_with_the_same_table(done: Callable[[str], Path], tmp_path: Path) -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import attnlight.cli.lightning_cli"], check=True)
    startup = time.monotonic() - began  # of each process: moments in and between all of them
    moments = random.Random(0)
    for attempt in range(3):
        process = begin(tmp_path, PAIR)
        time.sleep(startup * moments.uniform(0.5, 4))
        if attempt == 1:  # the study alone: its runs must not go on without it
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    # at once: the lock is free as soon as the killed one's runs have ended
    finish(begin(tmp_path, PAIR))
    killed, whole = (
        pq.read_table(folder / "study.parquet") for folder in (tmp_path / "study", done("texts"))
    )
    names = set(killed["run"].to_pylist())
    assert names == {"base-s0", "adversary-kl-l0.01-s1"}
    same = whole.filter(pc.is_in(whole["run"], pa.array(sorted(names))))
    assert killed.drop(["run"]).equals(same.drop(["run"]))
    assert killed["run"].to_pylist() == same["run"].to_pylist()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent")
def test_run_ends_with_its_study() -> None:
    """Without a study's end in sight: a process that waits, started as a study starts its runs."""
    child = (
        "import time; from attnlight.cli.processes import end_with_parent; "
        "end_with_parent(); print('up', flush=True); time.sleep(3600)"
    )
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    parent.kill()
    said, _ = parent.communicate(timeout=600)
    assert said == "", "the pipe closes when the child is gone"
