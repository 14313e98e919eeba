"""The state of a study on disk: its runs, its plan, and the locks of those at work there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnlight.compatibility import section
from attnlight.errors import InputError
from attnlight.files import LEFTOVER, named_errors, read_yaml, write_text
from attnlight.records import RecordError, read_metadata
from attnlight.studies.argv import BEST, PREDICTIONS, Stage, recorded
from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import chosen_epoch
from attnlight.studies.spec import Study

State = Literal["finished", "failed", "missing"]
PLAN = "plan.json"
_SCHEMA = 1
# The runs of a study that was killed end a moment after it, and hold its lock until then.
_PATIENCE = 5.0


@dataclass(frozen=True, eq=False)
class StudyFolder:
    """A study's folder, `<root>/<study>`, and the runs of its plan by name."""

    path: Path
    study: Study
    runs: Mapping[str, PlannedRun]

    def log(self, run: str) -> Path:
        """The file that holds what a run's process prints."""
        return self.path / "logs" / f"{run}.log"

    def note(self, run: PlannedRun) -> dict[str, Any]:
        """The `state` in which a run's process ended, and its `seconds`; empty where none did."""
        return read_json(self.log(run.name).with_suffix(".json"))

    def state(self, run: PlannedRun) -> State:
        """`finished` where a run is trained and all its records are there and readable.

        One that failed is tried again when the study is started again.
        """
        with suppress(RecordError):
            if self.fitted(run) and all(read_metadata(path) for path in self.records(run)):
                return "finished"
        return "failed" if self.note(run).get("state") == "failed" else "missing"

    def fitted(self, run: PlannedRun) -> bool:
        """Whether `fit` finished and the checkpoint of its best epoch is there."""
        status = read_json(self.path / run.name / "status.json")
        return status.get("state") == "finished" and zipfile.is_zipfile(self.path / run.name / BEST)

    def records(self, run: PlannedRun) -> list[Path]:
        """Paths of the records that a finished run has."""
        splits, names = recorded(self.study, run)
        found = [self.record(run.name, stage, name) for stage in splits for name in names]
        for stage, tests in splits.items():
            for path in tests:
                for callback in read_yaml(path).get("trainer", {}).get("callbacks+", []):
                    kind = str(callback["class_path"]).rpartition(".")[2]
                    name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
                    found.append(self.record(run.name, stage, name))
        return found

    def record(self, run: str, stage: Stage, name: str) -> Path:
        """Path of a record of a run's best epoch.

        `fit` numbers those of validation by epoch; `validate` does not.

        Raises:
            InputError: The checkpoint, which tells the epoch, cannot be read.
        """
        if stage == "val" and not self.study.setup.target:
            name = f"{name}-{chosen_epoch(self.path / run / BEST)}"
        return self.path / run / "records" / stage / f"{name}.parquet"

    def setting(self, run: str, part: str, option: str) -> Any:  # noqa: ANN401
        """An option of `model` or `data` in a run's `fit.yaml`, None where it is not there.

        Dots stand between a group and its option.
        """
        path = self.path / run / "fit.yaml"
        content = section((read_yaml(path) if path.is_file() else {}).get(part) or {})
        value: Any = content.get("init_args") or {}
        for name in option.split("."):
            value = (value or {}).get(name)
        return value

    def guide_run(self, run: PlannedRun) -> str | None:
        """The run whose attention guides a run by its `fit.yaml`."""
        given = self.setting(run.name, "model", "guide_checkpoint")
        return None if given is None else Path(str(given).removesuffix(f"/{BEST}")).name

    def require_sound_bases(self) -> None:
        """Refuse a base whose checkpoint is not the one that its records are of.

        Raises:
            InputError: It was damaged or replaced since it was tested.
        """
        for run in self.runs.values():
            path, best = self.record(run.name, "test", PREDICTIONS), self.path / run.name / BEST
            if run.role != "base" or not path.is_file():
                continue
            digest = None
            if best.is_file():
                with best.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
            if read_metadata(path).get("checkpoint_hash") != digest:
                raise InputError(
                    f"{best} is not the file that was tested, it is damaged or another one: delete "
                    f"{best.parent}, and the same command makes it anew."
                )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's mapping; empty where the file is missing or holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def working(folder: Path, shard: int, shards: int, digests: Mapping[str, str]) -> Iterator[int]:
    """Hold a shard, from 1, of a study, and add its runs to those that the folder's plan names.

    Yields:
        The descriptor of the lock; a process that inherits it holds the shard too.

    Raises:
        InputError: Another process is at work on this shard, or on one of another number of shards;
            the folder holds another study, or cannot be written.
    """
    with ExitStack() as stack:
        with locked(folder / ".lock", leftovers=PLAN):
            for other in folder.glob(".lock-*of*"):
                if not other.name.endswith(f"of{shards}"):
                    with locked(other, "all that work there at a time must split it alike"):
                        pass
            own = locked(folder / f".lock-{shard}of{shards}", "wait for it, or end it")
            descriptor = stack.enter_context(own)
            there = require_same_plan(folder, digests)
            if digests.items() - there.items():
                content = {"schema": _SCHEMA, "runs": there | dict(digests)}
                write_text(folder / PLAN, json.dumps(content, indent=1) + "\n")
        yield descriptor


@contextmanager
def locked(path: Path, advice: str | None = None, leftovers: str | None = None) -> Iterator[int]:
    """Hold the lock of a file; a process that inherits its descriptor holds it too.

    `advice` is what to do where another process holds it; None: wait for it. What a killed process
    left half-written of files named `leftovers`, which are written under this lock, is removed.

    Raises:
        InputError: Another process holds it, or the file cannot be written.
    """
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + (math.inf if advice is None else _PATIENCE)
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                part, _, whole = path.name.removeprefix(".lock-").partition("of")
                name = "the whole" if whole == "1" else f"shard {part}/{whole}"
                raise InputError(
                    f"another process is at work on {name} of {path.parent}: {advice}."
                )
            time.sleep(0.1)
        for left in path.parent.glob(LEFTOVER.format(leftovers)) if leftovers else ():
            left.unlink()
        yield descriptor
    finally:
        os.close(descriptor)


def require_same_plan(folder: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """The digests of the runs in a study's folder, none of which differs from the same run's here.

    A study may grow or shrink: a run must be the same only where both have it.

    Raises:
        InputError: A run differs, or what the folder holds cannot be read.
    """
    path = folder / PLAN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, not {_SCHEMA}")
        there = dict(content["runs"])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not what `attnlight study` writes: {error}.") from error
    different = [name for name, digest in digests.items() if there.get(name, digest) != digest]
    if different or (there and digests and not there.keys() & digests.keys()):
        which = f"{different[0]} differs" if different else "no run is the same"
        raise InputError(
            f"{folder} holds another study, or this one with other settings ({which}): give "
            "another --name or --root, or delete the folder."
        )
    return there
