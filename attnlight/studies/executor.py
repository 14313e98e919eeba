"""Do what is missing of a plan, several runs at a time, each in a process that ends when this does.

A study that is killed leaves no run behind that goes on alone, so that it can be started again at
once. Elsewhere than on Linux such a run goes on, and the lock that it inherited keeps others off.

Started as a program, this is a run: its commands, a JSON list, follow each other in one process,
which imports all and reads the corpus once.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired

from attnlight.__main__ import main
from attnlight.files import named_errors, write_text
from attnlight.processes import end_with_parent
from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.collect import selection
from attnlight.studies.plan import PlannedRun
from attnlight.studies.state import StudyFolder

PROGRAM = (sys.executable, "-m", "attnlight.studies.executor")
_POLL = 0.05
_PATIENCE = 20.0


@dataclass
class Outcome:
    """What became of the runs that were asked for.

    Those that failed have a reason; those skipped need one that failed, or was skipped in turn; those
    that wait need one that was not asked for, such as another shard's.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


@dataclass
class Executor:
    """Does runs, as many as `jobs` at a time, in processes that inherit the descriptor `lock`."""

    folder: StudyFolder
    jobs: int
    lock: int
    outcome: Outcome = field(default_factory=Outcome, init=False)
    _done: set[str] = field(default_factory=set, init=False)
    _pending: list[PlannedRun] = field(default_factory=list, init=False)
    # By run its process, and when that began.
    _active: dict[str, tuple[Popen[bytes], float]] = field(default_factory=dict, init=False)
    _total: int = field(default=0, init=False)

    def work(self, asked: Sequence[PlannedRun]) -> Outcome:
        """Do the runs that are asked for and are not done, and return what became of them."""
        self._pending = [run for run in asked if not self._is_done(run)]
        self.outcome.finished = [run.name for run in asked if run.name in self._done]
        self._total = len(self._pending)
        try:
            while self._pending or self._active:
                for run in list(self._pending):
                    self._start_or_skip(run)
                if not self._active:
                    break
                while all(process.poll() is None for process, _ in self._active.values()):
                    time.sleep(_POLL)
                for name in [n for n, (p, _) in self._active.items() if p.returncode is not None]:
                    self._end(self.folder.runs[name])
        finally:  # after an interruption some go on
            processes = [process for process, _ in self._active.values()]
            for process in processes:
                process.terminate()
            deadline = time.monotonic() + _PATIENCE
            for process in processes:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except TimeoutExpired:
                    process.kill()
                    process.wait()
        self.outcome.waiting = [run.name for run in self._pending]
        return self.outcome

    def _is_done(self, run: PlannedRun) -> bool:
        """Whether a run is finished, and guided by the adversary that is selected now if by any."""
        if run.name not in self._done and self.folder.state(run) == "finished":
            needs = [self.folder.runs[name] for name in run.needs]
            if run.guide != "adversary" or (
                all(map(self._is_done, needs))
                and self.folder.guide_run(run) == self._guide_run(run)
            ):
                self._done.add(run.name)
        return run.name in self._done

    def _guide_run(self, run: PlannedRun) -> str | None:
        if run.guide != "adversary":
            return run.guide_run
        needs = [self.folder.runs[name] for name in run.needs]
        selected = selection(self.folder, needs, self.folder.study.adversaries.term)
        return None if selected is None else selected.guide_run(run.seed)

    def _start_or_skip(self, run: PlannedRun) -> None:
        """Start a run whose needs are done, if there is room; skip one of which some failed."""
        lost = [n for n in run.needs if n in self.outcome.failed or n in self.outcome.skipped]
        if lost:
            self._pending.remove(run)
            self.outcome.skipped.append(run.name)
            self._say(run, f"skipped: it needs {lost[0]}")
            return
        under_way = {other.name for other in self._pending} | self._active.keys()
        if len(self._active) < self.jobs and all(
            name not in under_way and self._is_done(self.folder.runs[name]) for name in run.needs
        ):
            self._pending.remove(run)
            self._start(run)

    def _start(self, run: PlannedRun) -> None:
        """Start what is missing of a run: `fit`, or what follows it alone."""
        folder, guide_run = self.folder, self._guide_run(run)
        commands = evaluation_commands(folder.study, run, folder.path)
        same_guide = folder.guide_run(run) == guide_run
        if not folder.fitted(run) or not same_guide:
            left, over = (folder.path / run.name / n for n in ("last.ckpt", "status.json"))
            resume = left.is_file() and not over.is_file() and same_guide
            how = ("--ckpt_path", "last") if resume else ("--overwrite",)
            commands.insert(0, fit_command(folder.study, run, folder.path, guide_run, how))
        linux = sys.platform == "linux"
        cores = len(os.sched_getaffinity(0)) if linux else os.cpu_count() or 1
        threads = str(max(1, cores // self.jobs))
        environment = {"OMP_NUM_THREADS": threads, "WANDB_JOB_TYPE": run.role, **os.environ}
        # In a SLURM allocation of several tasks Lightning would wait for those that srun starts.
        environment.pop("SLURM_NTASKS", None)
        log = folder.log(run.name)
        with named_errors(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                file.write(f"$ attnlight {' '.join(commands[0])}\n".encode())
                file.flush()
                process = Popen(
                    [*PROGRAM, json.dumps(commands)],
                    stdin=DEVNULL,
                    stdout=file,
                    stderr=STDOUT,
                    env=environment,
                    pass_fds=(self.lock,),
                )
        self._active[run.name] = process, time.monotonic()

    def _end(self, run: PlannedRun) -> None:
        """Note how a run's process ended, and why it failed."""
        process, began = self._active.pop(run.name)
        status, seconds = process.returncode, time.monotonic() - began
        log = self.folder.log(run.name)
        finished = status == 0 and self._is_done(run)
        if finished:
            # As large as the best epoch, and of no use to a run that is done.
            (self.folder.path / run.name / "last.ckpt").unlink(missing_ok=True)
            self.outcome.finished.append(run.name)
            self._say(run, f"finished in {minutes(seconds)}")
        else:
            lines = log.read_bytes().decode("utf-8", "replace").split("\n")
            why = [line.strip() for line in lines if line.strip()][-1]
            if status < 0:
                why = f"ended by {signal.Signals(-status).name}"
            elif status == 0:
                why = "it left no readable checkpoint, or not all records"
            self.outcome.failed[run.name] = why
            self._say(run, f"failed after {minutes(seconds)}: {why} ({log})")
        note = {"state": "finished" if finished else "failed", "seconds": round(seconds, 1)}
        write_text(log.with_suffix(".json"), json.dumps(note) + "\n")

    def _say(self, run: PlannedRun, what: str) -> None:
        ended = self._total - len(self._pending) - len(self._active)
        print(f"[{ended}/{self._total}] {run.name} {what}", flush=True)


def minutes(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> minutes(90), minutes(12)
        ('1.5 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def run_commands(text: str) -> int:
    """Run commands, a JSON list, until one fails, and return the exit status of the last."""
    import torch

    surroundings, commands = dict(os.environ), json.loads(text)
    while commands:
        sys.argv[1:] = commands.pop(0)  # with which Lightning starts other ranks
        status = main()
        # Lightning leaves a seed, a rank and a port there, which a second command would take over.
        os.environ.clear()
        os.environ.update(surroundings)
        gc.collect()
        if status or not commands:
            return status
        print(f"$ attnlight {' '.join(commands[0])}", flush=True)
        if torch.distributed.is_initialized():  # a process is of one group of ranks in its life
            os.execv(PROGRAM[0], [*PROGRAM, json.dumps(commands)])
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(run_commands(sys.argv[1]))
