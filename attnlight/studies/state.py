"""The state of a study on disk: its runs, and its plan."""

import fcntl
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from attnlight.callbacks.base import record_name
from attnlight.callbacks.surroundings import checkpoint_hash
from attnlight.data.removed_words import RECORD
from attnlight.errors import InputError
from attnlight.records import RecordError, read_metadata
from attnlight.report.run import require_one_corpus
from attnlight.storage import files
from attnlight.storage.files import LEFTOVER_GLOB, named_errors, read_yaml, write_text
from attnlight.studies.argv import BEST, PREDICTIONS, Stage, evaluations
from attnlight.studies.plan import PlannedRun, digests
from attnlight.studies.selection import chosen_epoch
from attnlight.studies.spec import Study

State = Literal["finished", "failed", "missing"]
PLAN = "plan.json"
_SCHEMA = 1
# The configuration in a file; with its time and size, an unchanged one is not read again.
_fit_config = cache(lambda path, *_: read_yaml(path))


@dataclass(frozen=True, eq=False)
class StudyFolder:
    """A study's folder, `<root>/<study>`, and the runs of its plan by name."""

    path: Path
    study: Study
    runs: Mapping[str, PlannedRun]

    @cached_property
    def digests(self) -> dict[str, str]:
        """For each run a hash of all that determines it."""
        return digests(self.study, self.runs.values())

    def log(self, run: str) -> Path:
        """The file that holds what a run's process prints."""
        return self.path / "logs" / f"{run}.log"

    def job_result(self, run: PlannedRun) -> dict[str, Any]:
        """The `state` in which a run's last job ended, and its `seconds`; empty if none has."""
        return read_json(self.log(run.name).with_suffix(".json"))

    def write_job_result(self, run: PlannedRun, state: State, seconds: float) -> None:
        """Write the state in which a run's job ended, and its duration, beside its log."""
        result = {"state": state, "seconds": round(seconds, 1)}
        write_text(self.log(run.name).with_suffix(".json"), json.dumps(result) + "\n")

    def state(self, run: PlannedRun) -> State:
        """`finished` if a run is trained and all its records are readable.

        A failed run is tried again when the study is started again.
        """
        with suppress(RecordError):
            known = [read_metadata(p) for p in self.records(run)] if self.fitted(run) else []
            scored = [about["methods"] for about in known if about.get("test") == RECORD]
            if known and all(method in methods for methods in scored for method in run.scored):
                return "finished"
        return "failed" if self.job_result(run).get("state") == "failed" else "missing"

    def fitted(self, run: PlannedRun) -> bool:
        """Whether `fit` finished and the checkpoint of its best epoch exists."""
        status = read_json(self.path / run.name / "status.json")
        return status.get("state") == "finished" and zipfile.is_zipfile(self.path / run.name / BEST)

    def records(self, run: PlannedRun) -> list[Path]:
        """Paths of the records of a finished run."""
        splits, names = evaluations(self.study, run)
        paths = [self.record(run.name, stage, name) for stage in splits for name in names]
        for stage, tests in splits.items():
            for path in tests:
                for callback in read_yaml(path).get("trainer", {}).get("callbacks+", []):
                    name = record_name(callback["class_path"], callback.get("init_args"))
                    paths.append(self.record(run.name, stage, name))
        return paths

    def record(self, run: str, stage: Stage, name: str) -> Path:
        """Path of a record of a run's best epoch.

        `fit` numbers records of validation by epoch; `validate`, which a study runs for some, does not.
        """
        path = self.path / run / "records" / stage / f"{name}.parquet"
        if stage == "val" and not (self.study.setup.several_instances or path.is_file()):
            path = path.with_stem(f"{name}-{chosen_epoch(self.path / run / BEST)}")
        return path

    def setting(self, run: str, part: str, option: str) -> Any:  # noqa: ANN401
        """An option of `model` or `data` in a run's `fit.yaml`, None if it is missing.

        A dot separates a group and its option.
        """
        path = self.path / run / "fit.yaml"
        state = path.stat() if path.is_file() else None
        fit = _fit_config(path, state.st_mtime_ns, state.st_size, state.st_ino) if state else {}
        content = fit.get(part) or {}
        value: Any = content.get("init_args") or {}
        for name in option.split("."):
            value = (value or {}).get(name)
        return value

    def guide_run(self, run: PlannedRun) -> str | None:
        """The run whose attention guides a run, according to its `fit.yaml`."""
        guide = self.setting(run.name, "model", "guide_checkpoint")
        return None if guide is None else Path(str(guide).removesuffix(f"/{BEST}")).name

    def require_sound_bases(self) -> None:
        """Refuse a base whose checkpoint does not match its records."""
        for run in self.runs.values():
            path, best = self.record(run.name, "test", PREDICTIONS), self.path / run.name / BEST
            if run.role != "base" or not path.is_file():
                continue
            if read_metadata(path).get("checkpoint_hash") != checkpoint_hash(best):
                raise InputError(
                    f"{best} is not the checkpoint that was tested: it was damaged or replaced; "
                    f"delete {best.parent}, and the same command trains it again."
                )

    def require_one_corpus(self, runs: Iterable[PlannedRun]) -> None:
        """Check that finished runs were tested on one corpus, or on what removals left of it."""
        complaint = (
            "come from different corpora, which no table can compare: restore the corpus and delete "
            "the later run, and the same command trains it again, or give another --name"
        )
        whole = [run for run in runs if not run.removals]
        require_one_corpus([self.record(run.name, "test", PREDICTIONS) for run in whole], complaint)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's mapping; empty if the file is missing or has no mapping."""
    with suppress(InputError):
        return files.read_json(path)
    return {}


@contextmanager
def exclusive(path: Path, leftovers: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock of a file, after waiting for other processes.

    The operating system releases it when this process ends, however it ends. `leftovers` names files
    that are written under this lock: their temporary files from a killed process are removed.
    """
    with ExitStack() as stack:
        with named_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        for temporary in path.parent.glob(LEFTOVER_GLOB.format(leftovers)) if leftovers else ():
            temporary.unlink()
        yield


def join_plan(folder: Path, digests: Mapping[str, str]) -> None:
    """Add runs to the plan in a study's folder."""
    files.require_no_links_out(folder)
    with exclusive(folder / ".lock", leftovers=PLAN):
        existing = require_same_plan(folder, digests)
        if digests.items() - existing.items():
            content = {"schema": _SCHEMA, "runs": existing | dict(digests)}
            write_text(folder / PLAN, json.dumps(content, indent=1) + "\n")


def require_same_plan(folder: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """The digests of the runs in a study's folder, after comparing them with those of a plan.

    A study may grow or shrink: only runs of both are compared.

    Raises:
        InputError: A run differs, or the folder's plan cannot be read.
    """
    path = folder / PLAN
    if not path.exists():
        return {}
    content = files.read_json(path)
    existing = content.get("runs")
    if content.get("schema") != _SCHEMA or not isinstance(existing, dict):
        raise InputError(f"{path} is not a plan of `attnlight study` of schema {_SCHEMA}.")
    different = [name for name, digest in digests.items() if existing.get(name, digest) != digest]
    if different or (existing and digests and not existing.keys() & digests.keys()):
        detail = f"{different[0]} differs" if different else "they have no run in common"
        raise InputError(
            f"{folder} contains another study, or this one with other settings ({detail}): give "
            "another --name or --root, or delete the folder."
        )
    return existing
