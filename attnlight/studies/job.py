"""A run of a study as a job: plain strings that any executor can pickle and start on any machine.

`python -m attnlight.studies.job JSON` runs a job in a new process.
"""

import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attnlight.__main__ import main
from attnlight.cli.processes import end_with_parent
from attnlight.errors import InputError
from attnlight.storage.files import named_errors
from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.collect import selection
from attnlight.studies.plan import PlannedRun, plan
from attnlight.studies.spec import read_studies
from attnlight.studies.state import State, StudyFolder, exclusive, require_same_plan


@dataclass(frozen=True)
class Job:
    """One run of a study. The job itself determines which commands are missing.

    A requeued job therefore resumes where it stopped, and a job whose run is in progress elsewhere
    waits for it and then has nothing to do. Paths are relative to `directory`; variables of
    `environment` are set. `name` is the study's, to which its folder's name adds the condition.
    """

    file: str
    root: str
    name: str
    condition: str | None
    run: str
    directory: str
    environment: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """The command line of a process that runs the job."""
        return [sys.executable, "-m", __spec__.name, json.dumps(asdict(self))]

    def __call__(self) -> int:
        """The exit status of the job in a new process, negative if a signal ended it."""
        return subprocess.run(self.command, cwd=self.directory, check=False).returncode

    def checkpoint(self) -> Any:  # noqa: ANN401
        """The submission that submitit requeues when a job's time is over: the same job."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def folder_of(root: Path, name: str, condition: str | None) -> Path:
    """The folder of a study, or of one of its conditions."""
    return root / "-".join(filter(None, (name, condition)))


def study_folders(file: Path, root: Path, name: str) -> list[StudyFolder]:
    """The studies of a file, one for each of its conditions, with their folders in `root`."""
    folders = []
    for study in read_studies(file):
        runs, path = plan(study), folder_of(root, name, study.condition)
        folder = StudyFolder(path, study, {run.name: run for run in runs})
        require_same_plan(path, folder.digests)
        folders.append(folder)
    return folders


def guide_run(folder: StudyFolder, run: PlannedRun) -> str | None:
    """The run whose attention guides a run: the plan's, or the one now selected on validation."""
    if run.guide != "adversary":
        return run.guide_run
    needs = [folder.runs[name] for name in run.needs]
    selected = selection(folder, needs, folder.study.adversaries.term)
    return None if selected is None else selected.guide_run(run.seed)


def is_done(folder: StudyFolder, run: PlannedRun) -> bool:
    """Whether a run is finished and, if an adversary guides it, by the one now selected."""
    if folder.state(run) != "finished":
        return False
    return run.guide != "adversary" or (
        all(is_done(folder, folder.runs[name]) for name in run.needs)
        and folder.guide_run(run) == guide_run(folder, run)
    )


def missing_commands(folder: StudyFolder, run: PlannedRun) -> list[list[str]]:
    """The arguments of `attnlight` for the missing steps of a run: all, or those after `fit`."""
    if is_done(folder, run):
        return []
    guide, commands = guide_run(folder, run), evaluation_commands(folder.study, run, folder.path)
    same_guide = folder.guide_run(run) == guide
    if not folder.fitted(run) or not same_guide:
        last, status = (folder.path / run.name / name for name in ("last.ckpt", "status.json"))
        resume = last.is_file() and not status.is_file() and same_guide
        mode = ("--ckpt_path", "last") if resume else ("--overwrite",)
        commands.insert(0, fit_command(folder.study, run, folder.path, guide, mode))
    return commands


def perform(job: Job) -> None:
    """Run the missing steps of a job's run, in a process that does nothing else.

    Output is appended to the run's log.

    Raises:
        SystemExit: With the exit status of the command that failed, or with an error message.
    """
    end_with_parent()
    os.chdir(job.directory)
    become_attnlight(job.environment)
    root = Path(job.root)
    log = folder_of(root, job.name, job.condition) / f"logs/{job.run}.log"
    try:
        print_to(log)
        folders = study_folders(Path(job.file), root, job.name)
        matches = [f for f in folders if f.study.condition == job.condition and job.run in f.runs]
        if not matches:
            raise InputError(f"{job.file} has changed: it no longer has a run {job.run}.")
        folder, run = matches[0], matches[0].runs[job.run]
        with exclusive(log.with_suffix(".lock")):
            commands, began = missing_commands(folder, run), time.monotonic()
            state: State = "failed"
            try:
                _run_commands(job, commands)
                state = folder.state(run)
            except SystemExit as exit:
                if isinstance(exit.code, int) and exit.code > 128:  # ended by a signal
                    state = "missing"
                raise
            finally:
                if commands:
                    folder.write_job_result(run, state, time.monotonic() - began)
            if state == "finished":  # with the optimizer's state, and no longer needed
                (folder.path / run.name / "last.ckpt").unlink(missing_ok=True)
    except InputError as error:
        sys.exit(f"attnlight: {error}")


def become_attnlight(environment: Mapping[str, str]) -> None:
    """Prepare this process for commands of `attnlight`, with some more environment variables."""
    os.environ.update(environment)
    # In a SLURM allocation of several tasks Lightning would wait for processes started by srun.
    os.environ.pop("SLURM_NTASKS", None)
    # Lightning starts other ranks with the arguments of this process and the module of `__main__`.
    sys.modules["__main__"] = importlib.import_module("attnlight.__main__")


def last_line(log: Path) -> str:
    """The last line of a log that is not blank; empty if there is none."""
    output = log.read_bytes().decode("utf-8", "replace") if log.is_file() else ""
    return ([line.strip() for line in output.split("\n") if line.strip()] or [""])[-1]


def print_to(log: Path) -> None:
    """Append the output of this process and its children to a file."""
    with named_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)


def _run_commands(job: Job, commands: Iterable[list[str]]) -> None:
    """Run commands of `attnlight` in this process."""
    environment = dict(os.environ)
    for place, command in enumerate(commands):
        if place:
            gc.collect()  # free the trainer, model and corpus of the previous command
        if torch.distributed.is_initialized():  # a process can join only one process group
            os.execv(sys.executable, job.command)
        print(f"$ attnlight {' '.join(command)}", flush=True)
        sys.argv[1:] = command
        if status := main():
            sys.exit(status)
        # Lightning sets a seed, a rank and a port, which the next command must not inherit.
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    perform(Job(**json.loads(sys.argv[1])))
