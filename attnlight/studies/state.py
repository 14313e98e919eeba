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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnlight.compatibility import section
from attnlight.errors import InputError
from attnlight.files import LEFTOVER, named_errors, write_text
from attnlight.records import RecordError, read_metadata
from attnlight.studies.argv import OPTIONS, PREDICTIONS, Stage, attached, checkpoint, evaluated
from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import chosen_epoch
from attnlight.studies.spec import Study
from attnlight.studies.values import read_yaml

State = Literal["finished", "failed", "missing"]
PLAN = "plan.json"
_SCHEMA = 1
# The runs of a study that was killed end a moment after it, and hold its lock until then.
_PATIENCE = 5.0


@dataclass(frozen=True)
class StudyFolder:
    """A study's folder.

    Attributes:
        path: `<root>/<study>`.
        study: The study.
    """

    path: Path
    study: Study

    def log(self, run: str) -> Path:
        """What a run's processes print."""
        return self.path / "logs" / f"{run}.log"

    def record(self, run: str, stage: Stage, name: str) -> Path:
        """A record of a run's best epoch, by the names of both.

        That of validation is one of `fit`, unless `validate` wrote it after.

        Raises:
            InputError: The checkpoint, which tells the epoch, cannot be read.
        """
        if stage not in evaluated(self.study):
            name = f"{name}-{chosen_epoch(checkpoint(self.path, run))}"
        return self.path / run / "records" / stage / f"{name}.parquet"

    def records(self, run: PlannedRun) -> list[Path]:
        """The records that are left of a run once it is trained."""
        found = []
        for stage in evaluated(self.study):
            of_bases = self.study.base.tests if run.base is None and stage == "test" else ()
            names = list(attached(run))
            for tests in (read_yaml(path) for path in (*self.study.tests, *of_bases)):
                for callback in tests.get("trainer", {}).get("callbacks+", []):
                    kind = str(callback["class_path"]).rpartition(".")[2]
                    names.append(re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower())
            found += [self.record(run.name, stage, name) for name in dict.fromkeys(names)]
        return found

    def status(self, run: PlannedRun) -> dict[str, Any]:
        """The `state` in which `fit` ended, and its number of `epochs`."""
        return _read_json(self.path / run.name / "status.json")

    def fitted(self, run: PlannedRun) -> bool:
        """Whether `fit` came to its end here and its best epoch is there."""
        whole = zipfile.is_zipfile(checkpoint(self.path, run.name))
        return self.status(run).get("state") == "finished" and whole

    def setting(self, run: str, part: str, option: str) -> Any:  # noqa: ANN401
        """An option of the model or data in the configuration of a run that is there.

        Args:
            run: Name of the run.
            part: `model` or `data`.
            option: Its name; dots stand between a group and its option.
        """
        path = self.path / run / "fit.yaml"
        held = section((read_yaml(path) if path.is_file() else {}).get(part) or {})
        value: Any = held.get("init_args") or {}
        for name in option.split("."):
            value = (value or {}).get(name)
        return value

    def guide_run(self, run: PlannedRun) -> str | None:
        """The run whose attention guides the one that is there."""
        given = self.setting(run.name, "model", OPTIONS["guide_run"])
        return None if given is None else Path(str(given).removesuffix("/best.ckpt")).name

    def done(self, run: PlannedRun) -> bool:
        """Whether a run is trained and all its records are there and readable."""
        try:
            return self.fitted(run) and all(read_metadata(path) for path in self.records(run))
        except RecordError:
            return False

    def state(self, run: PlannedRun) -> State:
        """The state of a run; one that failed is tried again when the study is started again."""
        if self.done(run):
            return "finished"
        return "failed" if self.note(run).get("state") == "failed" else "missing"

    def note(self, run: PlannedRun) -> dict[str, Any]:
        """The `state` in which the process of a run ended, and after how many `seconds`."""
        return _read_json(self.log(run.name).with_suffix(".json"))

    def keep_note(self, run: PlannedRun, state: State, seconds: float) -> None:
        """Keep what `note` reads."""
        content = {"state": state, "seconds": round(seconds, 1)}
        write_text(self.log(run.name).with_suffix(".json"), json.dumps(content) + "\n")

    def require_sound_bases(self, runs: Sequence[PlannedRun]) -> None:
        """Refuse a base whose checkpoint is not the one that its records are of.

        Raises:
            InputError: It was damaged or replaced since it was tested.
        """
        for run in runs:
            path, best = self.record(run.name, "test", PREDICTIONS), checkpoint(self.path, run.name)
            if run.role != "base" or not path.is_file():
                continue
            found = None
            if best.is_file():
                with best.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()[:16]
            if found is None or read_metadata(path).get("checkpoint_hash") != found:
                raise InputError(
                    f"{best} is not the file that was tested, it is damaged or another one: delete "
                    f"{best.parent}, and the same command makes it anew."
                )


def _read_json(path: Path) -> dict[str, Any]:
    """A small file of plain values; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def working(
    folder: Path, shard: int, shards: int, digests: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Hold a shard of a study, and note which runs the folder holds.

    Runs of an earlier and larger plan stay among these.

    Args:
        folder: The study's folder, made where it is missing.
        shard: Number of the shard, from 1.
        shards: How many there are.
        digests: By run, a hash of all that decides it.

    Yields:
        The descriptor of the lock; a process that inherits it holds the shard too.

    Raises:
        InputError: Another process is at work on this shard, or on one of another number of shards;
            the folder holds another study, or cannot be written.
    """
    own = folder / f".lock-{shard}of{shards}"
    with ExitStack() as stack:
        with _locked(folder / ".lock"):
            for other in folder.glob(".lock-*of*"):
                if not other.name.endswith(f"of{shards}"):
                    with _locked(other, "all that work there at a time must split it alike"):
                        pass
            descriptor = stack.enter_context(_locked(own, "wait for it, or end it"))
            for left in folder.glob(LEFTOVER.format(PLAN)):
                left.unlink()
            known = require_same_plan(folder, digests or {})
            both = known | dict(digests or {})
            if both != known:
                write_text(
                    folder / PLAN, json.dumps({"schema": _SCHEMA, "runs": both}, indent=1) + "\n"
                )
        yield descriptor


@contextmanager
def collecting(folder: Path) -> Iterator[None]:
    """Wait for other shards that write what is collected of a study, whose folder is made.

    What one that was killed left half-written of it is removed.
    """
    with _locked(folder / ".lock-collect"):
        for left in folder.glob(LEFTOVER.format("study.*")):
            left.unlink()
        yield


@contextmanager
def _locked(path: Path, advice: str | None = None) -> Iterator[int]:
    """Hold the lock of a file, which a process that inherits its descriptor holds too.

    Args:
        path: The file; its folder is made where it is missing.
        advice: What to do where another process holds it; None: this one waits for it.

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
        yield descriptor
    finally:
        os.close(descriptor)


def require_same_plan(folder: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """Refuse a folder that holds runs of another study.

    A study may grow or shrink: only a run that both have must be the same in both.

    Args:
        folder: The study's folder.
        digests: By run, a hash of all that decides it.

    Returns:
        The digests of the runs that the folder holds.

    Raises:
        InputError: A run differs, or what the folder holds cannot be read.
    """
    path = folder / PLAN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, not {_SCHEMA}")
        kept = dict(content["runs"])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not what `attnlight study` writes: {error}.") from error
    different = [name for name, digest in digests.items() if kept.get(name, digest) != digest]
    if different or (kept and digests and not kept.keys() & digests.keys()):
        which = f"{different[0]} differs" if different else "no run is the same"
        raise InputError(
            f"{folder} holds another study, or this one with other settings ({which}): give "
            "another --name or --root, or delete the folder."
        )
    return kept
