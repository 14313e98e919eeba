"""`run_study`: do what is missing of a study on any executor, and collect it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnlight.studies.collect import JSON, collect
from attnlight.studies.job import Job, is_done, perform, study_folders
from attnlight.studies.plan import ROLES, PlannedRun, deal, digests
from attnlight.studies.process_executor import ProcessExecutor
from attnlight.studies.state import StudyFolder, exclusive, join_plan

# Variables that a job takes along: a worker on another machine may lack them.
_TAKEN_ALONG = ("ATTNLIGHT_", "WANDB_", "HF_", "OMP_NUM_THREADS")
_LOST = 255  # what multiprocessing gives a process whose status it could not learn


@dataclass
class Outcome:
    """What became of the runs of a study that were asked for.

    Those that failed have a reason; those skipped need one that failed, or was skipped in turn; those
    that wait need one that was not asked for, such as another shard's.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


def run_study(
    file: str | Path,
    root: str | Path = "checkpoints",
    name: str | None = None,
    *,
    roles: Iterable[str] = ROLES,
    shard: tuple[int, int] = (1, 1),
    executor: Executor | None = None,
) -> dict[Path, Outcome]:
    """Do what is missing of a study, write its tables, and return what became of its runs by folder.

    What is done is not done again: after an interruption the same call goes on. Two calls at once
    share the work.

    Args:
        file: The study file, or the name of a shipped one.
        root: Folder of all runs.
        name: The study's folder in it; None: the file's stem.
        roles: Do runs of these alone: base, uniform, seed, guide, adversary.
        shard: I and N, to do the I-th of N parts of the plan alone.
        executor: What does the runs; it is left open. Its workers must see `root` and the working
            directory, and have attnlight installed. None: a `ProcessExecutor`.

    Raises:
        InputError: The study file is wrong, a base is damaged, the folder holds another study, or a
            file cannot be written.
    """
    file, root, roles = Path(file), Path(root), set(roles)
    name = name or file.stem
    folders = study_folders(file, root, name)
    for folder in folders:
        join_plan(folder.path, digests(folder.study, folder.runs.values()))
        folder.require_sound_bases()
    with ExitStack() as stack:
        if executor is None:
            executor = ProcessExecutor()
            stack.callback(executor.shutdown, cancel_futures=True)
        schedules = []
        for folder in folders:
            runs = asked(folder, roles, shard)
            job = Job(str(file), str(root), name, folder.study.condition, "", str(Path.cwd()), {})
            schedules.append(_Schedule(folder, runs, job, executor))
        _work(schedules)
    _compare(folders, root / name)
    return {schedule.folder.path: schedule.outcome for schedule in schedules}


def asked(folder: StudyFolder, roles: Iterable[str], shard: tuple[int, int]) -> list[PlannedRun]:
    """The runs of a study that have one of some roles and belong to a shard, the I-th of N."""
    return [run for run in deal([*folder.runs.values()], *shard) if run.role in roles]


def _work(schedules: Sequence[_Schedule]) -> None:
    """Do the runs of all schedules, and collect each study once nothing is left to do of it."""
    left, active = list(schedules), dict[Future[int], _Schedule]()
    try:
        while left:
            for schedule in list(left):
                active |= dict.fromkeys(schedule.start(), schedule)
                if schedule not in active.values():
                    left.remove(schedule)
                    schedule.collect()
            for future in wait(active, return_when=FIRST_COMPLETED).done if active else ():
                active.pop(future).end(future)
    finally:
        for future in active:
            future.cancel()


class _Schedule:
    """The runs of one study that are asked for, each started once those that it needs are done.

    Args:
        folder: The study's folder.
        runs: The runs that are asked for.
        job: What all jobs of the study have in common.
        executor: What does them.
    """

    def __init__(
        self, folder: StudyFolder, runs: Sequence[PlannedRun], job: Job, executor: Executor
    ) -> None:
        self.folder, self._job, self._executor = folder, job, executor
        self._done: set[str] = set()
        self._tried: set[str] = set()  # the runs whose worker died once
        self._active: dict[Future[int], PlannedRun] = {}
        self._pending = [run for run in runs if not self._is_done(run.name)]
        self._total = len(self._pending)
        self.outcome = Outcome([run.name for run in runs if run.name in self._done])
        print(f"{folder.path}: {len(runs)} of {len(folder.runs)} runs are asked for", flush=True)

    def _is_done(self, name: str) -> bool:
        if name not in self._done and is_done(self.folder, self.folder.runs[name]):
            self._done.add(name)
        return name in self._done

    def start(self) -> list[Future[int]]:
        """Start each run whose needs are done, and skip each of which one failed."""
        started = []
        for run in list(self._pending):
            lost = [n for n in run.needs if n in self.outcome.failed or n in self.outcome.skipped]
            under_way = {other.name for other in (*self._pending, *self._active.values())}
            if lost:
                self._pending.remove(run)
                self.outcome.skipped.append(run.name)
                self._say(run, f"skipped: it needs {lost[0]}")
            elif under_way.isdisjoint(run.needs) and all(map(self._is_done, run.needs)):
                self._pending.remove(run)
                started.append(self._submit(run))
        return started

    def _submit(self, run: PlannedRun) -> Future[int]:
        taken = {key: text for key, text in os.environ.items() if key.startswith(_TAKEN_ALONG)}
        job = replace(self._job, run=run.name, environment={"WANDB_JOB_TYPE": run.role} | taken)
        if isinstance(self._executor, ProcessExecutor):  # the process is the job's own
            future = self._executor.submit(perform, job)
        else:
            future = self._executor.submit(job)
        self._active[future] = run
        return future

    def end(self, future: Future[int]) -> None:
        """Note how a run ended; one whose process or worker died is tried once more."""
        run = self._active.pop(future)
        log, error = self.folder.log(run.name), future.exception()
        status = _LOST if error else future.result()
        if status == 0 and self._is_done(run.name):
            self.outcome.finished.append(run.name)
            self._say(run, f"finished in {minutes(self.folder.note(run).get('seconds', 0))}")
            return
        if error:
            why = f"its worker failed: {' '.join(str(error).split())}"
        elif status == _LOST:
            why = "its process was lost"
        elif status < 0:
            why = f"ended by {signal.Signals(-status).name}"
        elif status == 0:
            why = "it left no readable checkpoint, or not all records"
        else:
            printed = log.read_bytes().decode("utf-8", "replace") if log.is_file() else ""
            why = (
                [line.strip() for line in printed.split("\n") if line.strip()]
                or ["it printed nothing"]
            )[-1]
        if (status < 0 or status == _LOST) and run.name not in self._tried:
            self._tried.add(run.name)
            self._pending.insert(0, run)
            self._say(run, f"{why}: it is tried once more")
            return
        if self.folder.note(run).get("state") != "failed":
            self.folder.write_note(run, "failed", 0)
        self.outcome.failed[run.name] = why
        self._say(run, f"failed: {why} ({log})")

    def _say(self, run: PlannedRun, what: str) -> None:
        ended = self._total - len(self._pending) - len(self._active)
        print(f"[{ended}/{self._total}] {run.name} {what}", flush=True)

    def collect(self) -> None:
        """Say what became of all runs, and write the study's tables of those that are finished."""
        outcome, folder = self.outcome, self.folder
        outcome.waiting = [run.name for run in self._pending]
        counts = {name: len(names) for name, names in vars(outcome).items()}
        print(", ".join(f"{n} {name}" for name, n in counts.items() if n), flush=True)
        for name, why in outcome.failed.items():
            print(f"failed: {name}: {why}")
        if outcome.waiting:
            names = ", ".join(outcome.waiting[:3]) + ", ..." * (len(outcome.waiting) > 3)
            print(f"{names} wait for runs of another shard or role: start this again after them.")
        with exclusive(folder.path / ".lock-collect", leftovers="study.*"):
            if collect(folder):
                from attnlight.report.study import write_study

                write_study(folder.path)
                print(folder.path / "report")


def minutes(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> minutes(90), minutes(12)
        ('1.5 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _compare(folders: Sequence[StudyFolder], output: Path) -> None:
    """Compare conditions whose adversaries are all finished, by what a text's instances sum to."""
    there = {}
    for folder in folders:
        name, runs = folder.study.condition, folder.runs.values()
        states = [folder.state(run) for run in runs if run.role == "adversary"]
        finished = set(states) == {"finished"} and (folder.path / JSON).is_file()
        if finished and name and folder.study.setup.target:
            there[name] = folder.path
    if there:
        from attnlight.report.study.conditions import write_exclusivity

        with exclusive(output / ".lock-collect", leftovers="study.*"):
            print(write_exclusivity(there, output)[0])
