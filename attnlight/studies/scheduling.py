"""`run_study`: run the missing runs of a study on any executor, and collect the results."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnlight.errors import one_line
from attnlight.storage.foreign_classes import TRUST, trusting
from attnlight.studies.collect import JSON, collect
from attnlight.studies.job import Job, is_done, last_line, perform, study_folders
from attnlight.studies.plan import ROLES, PlannedRun, selected_runs
from attnlight.studies.process_executor import ProcessExecutor
from attnlight.studies.state import StudyFolder, exclusive, join_plan

# Prefixes of the environment variables that are passed to jobs on other machines.
_PASSED_ON = ("ATTNLIGHT_", "WANDB_", "HF_", "OMP_NUM_THREADS")
_LOST = 255  # exit code by multiprocessing for a process of unknown status


@dataclass
class Outcome:
    """The outcome of a study's selected runs.

    Failed runs have a reason; skipped runs need one that failed or was skipped; waiting runs need one
    that was not selected, such as another shard's.
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
    """Run the missing runs of a study, write its tables, and return the outcomes by folder.

    Finished runs are not repeated: after an interruption the same call resumes the study.
    Concurrent calls share the work.

    Args:
        file: The study file, or the name of a shipped one.
        root: Folder of all runs.
        name: The study's folder in it; None: the file's stem.
        roles: Run only these roles: base, uniform, seed, guide, adversary, roar.
        shard: I and N, to run only the I-th of N parts of the plan.
        executor: The executor of the runs, which is not shut down. Its workers must see `root` and
            the working directory, and have attnlight installed. None: a `ProcessExecutor`.

    Raises:
        InputError: The study file is wrong, a base is damaged, the folder contains another study, or
            a file cannot be written.
    """
    file, root, roles = Path(file), Path(root), set(roles)
    name = name or file.stem
    folders = study_folders(file, root, name)
    for folder in folders:
        join_plan(folder.path, folder.digests)
        folder.require_sound_bases()
    with ExitStack() as stack:
        if executor is None:
            executor = ProcessExecutor()
            stack.callback(executor.shutdown, cancel_futures=True)
        schedules = []
        for folder in folders:
            runs = selected_runs([*folder.runs.values()], roles, shard)
            job = Job(str(file), str(root), name, folder.study.condition, "", str(Path.cwd()), {})
            schedules.append(_Schedule(folder, runs, job, executor))
        _work(schedules)
    complete = {}  # conditions whose adversaries are all finished, by sums over texts
    for folder in folders:
        states = [folder.state(run) for run in folder.runs.values() if run.role == "adversary"]
        finished = set(states) == {"finished"} and (folder.path / JSON).is_file()
        if finished and folder.study.condition and folder.study.setup.several_instances:
            complete[folder.study.condition] = folder.path
    if complete:
        from attnlight.report.study.conditions import write_exclusivity

        with exclusive(root / name / ".lock-collect", leftovers="study.*"):
            print(write_exclusivity(complete, root / name)[0])
    return {schedule.folder.path: schedule.outcome for schedule in schedules}


def _work(schedules: Sequence[_Schedule]) -> None:
    """Run all schedules, and collect each study as soon as its schedule is finished."""
    unfinished, active = list(schedules), dict[Future[int], _Schedule]()
    try:
        while unfinished:
            for schedule in list(unfinished):
                active |= dict.fromkeys(schedule.start(), schedule)
                if schedule not in active.values():
                    unfinished.remove(schedule)
                    schedule.collect()
            for future in wait(active, return_when=FIRST_COMPLETED).done if active else ():
                active.pop(future).end(future)
    finally:
        for future in active:
            future.cancel()


class _Schedule:
    """The selected runs of one study, each started when its dependencies are done.

    `job` is the template of their jobs.
    """

    def __init__(
        self, folder: StudyFolder, runs: Sequence[PlannedRun], job: Job, executor: Executor
    ) -> None:
        self.folder, self._job, self._executor = folder, job, executor
        self._trust = trusting(folder.study)
        self._done: set[str] = set()
        self._retried: set[str] = set()  # the runs whose worker died once
        self._active: dict[Future[int], PlannedRun] = {}
        self._pending = [run for run in runs if not self._is_done(run.name)]
        self._total = len(self._pending)
        self.outcome = Outcome([run.name for run in runs if run.name in self._done])
        folder.require_one_corpus(folder.runs[name] for name in self.outcome.finished)
        print(f"{folder.path}: {len(runs)} of {len(folder.runs)} runs are selected", flush=True)

    def _is_done(self, name: str) -> bool:
        if name not in self._done and is_done(self.folder, self.folder.runs[name]):
            self._done.add(name)
        return name in self._done

    def start(self) -> list[Future[int]]:
        """Start each run whose dependencies are done, and skip each with a failed one."""
        started: list[Future[int]] = []
        variables = {key: text for key, text in os.environ.items() if key.startswith(_PASSED_ON)}
        for run in list(self._pending):
            failed = [n for n in run.needs if n in self.outcome.failed or n in self.outcome.skipped]
            unfinished = {other.name for other in (*self._pending, *self._active.values())}
            if failed:
                self._pending.remove(run)
                self.outcome.skipped.append(run.name)
                self._report(run, f"skipped: it needs {failed[0]}")
            elif unfinished.isdisjoint(run.needs) and all(map(self._is_done, run.needs)):
                self._pending.remove(run)
                environment = {"WANDB_JOB_TYPE": run.role} | variables | {TRUST: self._trust}
                job = replace(self._job, run=run.name, environment=environment)
                if isinstance(self._executor, ProcessExecutor):  # already a process per job
                    started.append(self._executor.submit(perform, job))
                else:
                    started.append(self._executor.submit(job))
                self._active[started[-1]] = run
        return started

    def end(self, future: Future[int]) -> None:
        """Record the outcome of a run; one whose process or worker died is retried once."""
        run = self._active.pop(future)
        log, error = self.folder.log(run.name), future.exception()
        status = _LOST if error else future.result()
        if 128 < status < _LOST:  # a command that a signal ended exits with 128 + its number
            status = 128 - status
        if status == 0 and self._is_done(run.name):
            self.outcome.finished.append(run.name)
            names = self.outcome.finished[0], run.name
            self.folder.require_one_corpus(self.folder.runs[name] for name in names)
            seconds = self.folder.job_result(run).get("seconds", 0)
            self._report(run, f"finished in {minutes(seconds)}")
            return
        if error:
            reason = f"its worker failed: {one_line(error)}"
        elif status == _LOST:
            reason = "its process was lost"
        elif status < 0:
            reason = f"ended by {signal.Signals(-status).name}"
        elif status == 0:
            reason = "its checkpoint is not readable, or records are missing"
        else:
            reason = last_line(log) or "it printed nothing"
        if (status < 0 or status == _LOST) and run.name not in self._retried:
            self._retried.add(run.name)
            self._pending.insert(0, run)
            self._report(run, f"{reason}; retrying once")
            return
        if self.folder.job_result(run).get("state") != "failed":
            self.folder.write_job_result(run, "failed", 0)
        self.outcome.failed[run.name] = reason
        self._report(run, f"failed: {reason} ({log})")

    def _report(self, run: PlannedRun, message: str) -> None:
        ended = self._total - len(self._pending) - len(self._active)
        print(f"[{ended}/{self._total}] {run.name} {message}", flush=True)

    def collect(self) -> None:
        """Print the outcome of all runs, and write the study's tables from the finished ones."""
        outcome, folder = self.outcome, self.folder
        outcome.waiting = [run.name for run in self._pending]
        counts = {name: len(names) for name, names in vars(outcome).items()}
        print(", ".join(f"{n} {name}" for name, n in counts.items() if n), flush=True)
        for name, reason in outcome.failed.items():
            print(f"failed: {name}: {reason}")
        if outcome.waiting:
            names = ", ".join(outcome.waiting[:3]) + ", ..." * (len(outcome.waiting) > 3)
            print(f"{names} wait for runs of another shard or role: run this again after those.")
        with exclusive(folder.path / ".lock-collect", leftovers="study.*"):
            collected = collect(folder)
            if collected:
                from attnlight.report.study import write_study

                write_study(folder.path)
        print(folder.path / "report" if collected else folder.path)


def minutes(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> minutes(90), minutes(12)
        ('1.5 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
