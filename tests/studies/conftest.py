"""A study whose runs are replaced by fakes, so that it takes a second."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.studies import cli, job
from attnlight.studies.plan import PlannedRun, plan
from attnlight.studies.spec import Study, read_studies
from attnlight.studies.state import StudyFolder
from tests.commands import CONFIGS
from tests.studies import fake

# Contents of study files: a base only, classifiers of every role, taggers, and taggers of one
# marked token of each sentence.
MINIMAL: dict[str, Any] = {
    "trainer": str(CONFIGS / "trainer.yaml"),
    "experiment": str(CONFIGS / "experiments/planted_bilstm.yaml"),
    "base": {"seeds": [0]},
}
ALL_ROLES: dict[str, Any] = MINIMAL | {
    "uniform": {"seeds": [0]},
    "seeds": {"seeds": [1]},
    "guides": {"names": ["base", "adversary", "other"], "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0, 0.05, 0.06]}, "seeds": [0, 1]},
}
TAGGER: dict[str, Any] = MINIMAL | {
    "experiment": str(CONFIGS / "experiments/conll2000_study.yaml"),
    "uniform": {"seeds": [0], "heads": [2]},
    "seeds": {"seeds": [1]},
    "guides": {"names": ["adversary"], "contexts": ["full", "tokens"], "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0, 0.05, 0.06], "released": [2.1]}, "seeds": [0, 1]},
}
MARKED: dict[str, Any] = MINIMAL | {
    "experiment": TAGGER["experiment"],
    "options": {"data": {"target": "marked"}},
    "adversaries": {"lambdas": {"kl": [0, 0.05]}, "seeds": [0]},
}


class Lab:
    """A folder with study files, the runs of these studies, and the commands that they started."""

    def __init__(self, folder: Path, calls: Path) -> None:
        self.folder, self._calls = folder, calls
        self.root = folder / "checkpoints"

    def write(self, content: dict[str, Any], name: str = "tiny") -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(copy.deepcopy(content), sort_keys=False))
        return path

    def study(self, content: dict[str, Any], name: str = "tiny") -> Study:
        """The one study of a file without conditions."""
        (study,) = read_studies(self.write(content, name))
        return study

    def run(self, content: dict[str, Any], *options: str, name: str = "tiny") -> int:
        return main(["study", str(self.write(content, name)), f"--root={self.root}", *options])

    def study_folder(self, content: dict[str, Any]) -> StudyFolder:
        return StudyFolder(self.root / "tiny", self.study(content), self.runs(content))

    def runs(self, content: dict[str, Any]) -> dict[str, PlannedRun]:
        """The plan by name."""
        return {run.name: run for run in plan(self.study(content))}

    def calls(self) -> list[list[str]]:
        """The command lines started since the last call."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def started(self) -> list[tuple[str, str]]:
        """Verb and run of each command line started since the last call."""
        found = []
        for verb, *words in self.calls():
            key = "--run=" if verb == "fit" else "--ckpt_path="
            (value,) = (word.removeprefix(key) for word in words if word.startswith(key))
            found.append((verb, value if verb == "fit" else Path(value).parent.name))
        return found

    def collected(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.root / "tiny/study.json").read_text())
        return content


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    torch.save({"epoch": 1}, tmp_path / "fake.ckpt")
    calls = tmp_path / "calls"
    monkeypatch.setenv("FAKE_CHECKPOINT", str(tmp_path / "fake.ckpt"))
    monkeypatch.setenv("FAKE_CALLS", str(calls))
    monkeypatch.setattr(cli, "ProcessExecutor", fake.Here)
    monkeypatch.setattr(job, "main", fake.main)
    monkeypatch.setattr("attnlight.report.study.write_study", lambda folder: [])
    return Lab(tmp_path, calls)
