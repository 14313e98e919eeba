"""A study whose runs are replaced by fakes, so that it takes a second."""

import copy
import json
from collections.abc import Callable
from functools import cache
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
    "adversaries": {"lambdas": {"kl": [0, 0.05, 0.06], "released": [2.1]}, "seeds": [0]},
}
MARKED: dict[str, Any] = MINIMAL | {
    "experiment": TAGGER["experiment"],
    "options": {"data": {"target": "marked"}},
    "adversaries": {"lambdas": {"kl": [0, 0.05]}, "seeds": [0]},
}
BROKEN = "adversary-kl-l0.05-s0"


class Lab:
    """A folder of studies and runs, and the commands they started; `capsys` has what they print."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any = None) -> None:
        self.folder, self._calls = folder, folder / "calls"
        self.root = folder / "checkpoints"
        self.monkeypatch, self.capsys = monkeypatch, capsys

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

    def starts(
        self, content: dict[str, Any], *options: str, status: int = 0
    ) -> list[tuple[str, str]]:
        """Verb and run of each command line of a study, which ends with this status."""
        self.calls()
        assert self.run(content, *options) == status
        return self.started()

    def study_folder(self, content: dict[str, Any]) -> StudyFolder:
        return StudyFolder(self.root / "tiny", self.study(content), self.runs(content))

    def runs(self, content: dict[str, Any]) -> dict[str, PlannedRun]:
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


def lab_of_fakes(folder: Path, patch: pytest.MonkeyPatch, capsys: Any = None) -> Lab:
    """A lab in which fakes stand in for runs, as long as the patch lasts."""
    torch.save({"epoch": 1}, folder / "fake.ckpt")
    patch.setenv("FAKE_CHECKPOINT", str(folder / "fake.ckpt"))
    patch.setenv("FAKE_CALLS", str(folder / "calls"))
    patch.setattr(cli, "ProcessExecutor", fake.Here)
    patch.setattr(job, "main", fake.main)
    # A second each, and fakes leave nothing behind.
    patch.setattr("attnlight.studies.job.gc.collect", lambda: 0)
    patch.setattr("attnlight.report.study.write_study", lambda folder: [])
    return Lab(folder, patch, capsys)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    return lab_of_fakes(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Lab, dict[str, Any]]]:
    """The lab of a finished study, to be read only, and its content; two sentences are broken."""

    @cache
    def study(name: str) -> tuple[Lab, dict[str, Any]]:
        content = {"texts": ALL_ROLES, "tokens": TAGGER, "marked": MARKED}[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAKE_BREAKS", BROKEN)
            patch.setenv("FAKE_BROKEN", "0 30")
            lab = lab_of_fakes(tmp_path_factory.mktemp(name), patch)
            assert lab.run(content) == 0
        return lab, content

    return study
