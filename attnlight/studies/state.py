"""What is on disk of each run of a study."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnlight.errors import InputError
from attnlight.files import write_text
from attnlight.records import RecordError, read_metadata
from attnlight.studies.commands import PREDICTIONS, Stage, attached, checkpoint, evaluated
from attnlight.studies.file import Study
from attnlight.studies.plan import PlannedRun
from attnlight.studies.sections import read_yaml

State = Literal["finished", "failed", "missing"]


@dataclass(frozen=True)
class StudyFolder:
    """A study's folder.

    Attributes:
        path: `<root>/<study>`.
        study: What it is of.
    """

    path: Path
    study: Study

    def run(self, name: str) -> Path:
        """A run's folder."""
        return self.path / name

    def log(self, name: str) -> Path:
        """What a run's processes print."""
        return self.path / "logs" / f"{name}.log"

    def fitted(self, run: PlannedRun) -> bool:
        """Whether `fit` came to its end here and its best epoch is there."""
        status = _read_json(self.run(run.name) / "status.json")
        whole = zipfile.is_zipfile(checkpoint(self.path, run.name))
        return status.get("state") == "finished" and whole

    def epochs(self, run: PlannedRun) -> int | None:
        """How many epochs a run was trained."""
        epochs = _read_json(self.run(run.name) / "status.json").get("epochs")
        return None if epochs is None else int(epochs)

    def resumable(self, run: PlannedRun) -> bool:
        """Whether an interrupted `fit` can go on."""
        folder = self.run(run.name)
        return (folder / "last.ckpt").is_file() and not (folder / "status.json").is_file()

    def told_by(self, run: PlannedRun) -> str | None:
        """The run whose attention guides the one that is there, as its configuration says."""
        path = self.run(run.name) / "fit.yaml"
        if not path.is_file():
            return None
        given = read_yaml(path).get("model", {}).get("init_args", {}).get("guide_checkpoint")
        return None if given is None else Path(given).parent.name

    def done(self, run: PlannedRun) -> bool:
        """Whether a run is trained and all its records are there and readable."""
        if not self.fitted(run):
            return False
        try:
            return all(read_metadata(path) for path in self.records(run))
        except RecordError:
            return False

    def record(self, run: str, stage: Stage, name: str) -> Path:
        """A record of a run's best epoch, by the names of both."""
        return self.run(run) / "records" / stage / f"{name}.parquet"

    def records(self, run: PlannedRun) -> list[Path]:
        """The records that are left of a run once it is trained."""
        of_bases = self.study.base_tests if run.base is None else ()
        own = {"val": self.study.tests, "test": self.study.tests + of_bases}
        return [
            self.record(run.name, stage, name)
            for stage in evaluated(self.study)
            for name in dict.fromkeys([*attached(run), *_attached_by(own[stage])])
        ]

    def state(self, run: PlannedRun) -> State:
        """What became of a run: one that fails is tried again when the study is started again."""
        if self.done(run):
            return "finished"
        return "failed" if self._note(run).get("state") == "failed" else "missing"

    def seconds(self, run: PlannedRun) -> float | None:
        """How long the processes of a finished run took."""
        note = self._note(run)
        return float(note["seconds"]) if note.get("state") == "finished" else None

    def note(self, run: PlannedRun, state: State, seconds: float) -> None:
        """Keep how the processes of a run ended."""
        content = {"state": state, "seconds": round(seconds, 1)}
        write_text(self._note_path(run), json.dumps(content) + "\n")

    def _note(self, run: PlannedRun) -> dict[str, Any]:
        return _read_json(self._note_path(run))

    def _note_path(self, run: PlannedRun) -> Path:
        return self.log(run.name).with_suffix(".json")

    def require_sound_bases(self, runs: Sequence[PlannedRun]) -> None:
        """Refuse a base whose checkpoint is not the one that its records are of.

        Raises:
            InputError: It was damaged or replaced since it was tested.
        """
        for run in runs:
            path = self.record(run.name, "test", PREDICTIONS)
            if run.role != "base" or not path.is_file():
                continue
            best = checkpoint(self.path, run.name)
            if not best.is_file() or read_metadata(path).get("checkpoint_hash") != _digest(best):
                raise InputError(
                    f"{best} is not the file that was tested, it is damaged or another one: delete "
                    f"{self.run(run.name)}, and the same command makes it anew."
                )


def _attached_by(files: Sequence[Path]) -> list[str]:
    """Names of the tests that configurations attach, as records have them."""
    callbacks = [
        callback
        for file in files
        for callback in read_yaml(file).get("trainer", {}).get("callbacks+", [])
    ]
    names = [str(callback["class_path"]).rpartition(".")[2] for callback in callbacks]
    return [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names]


def _read_json(path: Path) -> dict[str, Any]:
    """A small file of plain values; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(path: Path) -> str:
    """The hash by which records know their checkpoint."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
