"""Do what is missing of a plan, several runs at a time, each in a process that ends when this does.

A study that is killed leaves no run behind that goes on alone, so that it can be started again at
once. Elsewhere than on Linux such a run goes on, and the lock that it inherited keeps others off.

Started as a program, this is a run: its commands follow each other in one process, which imports
all and reads the corpus once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired

from attnlight.__main__ import main
from attnlight.files import named_errors
from attnlight.processes import end_with_parent
from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import Selection
from attnlight.studies.state import StudyFolder

PROGRAM = (sys.executable, "-m", "attnlight.studies.executor")
_THEN = "then"  # stands between the words of two commands
_POLL = 0.05
_PATIENCE = 20.0


@dataclass
class Outcome:
    """What became of the runs that were asked for.

    Attributes:
        finished: Those that are done.
        failed: Those that failed, with the last line of their log.
        skipped: Those that need one of these.
        waiting: Those that need a run that is nobody's business here, such as another shard's.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The exit status: 1 after a failure, 3 where runs wait, else 0."""
        return 1 if self.failed else 3 if self.waiting else 0


class Executor:
    """Does runs that are asked for, each after those that it needs.

    Args:
        folder: Where they are.
        runs: The whole plan.
        selected: Tells which adversary guides, once all are there.
        jobs: How many runs go on at a time.
        lock: A descriptor that their processes inherit.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[PlannedRun],
        selected: Callable[[], Selection | None],
        *,
        jobs: int,
        lock: int,
    ) -> None:
        self._folder, self._runs, self._selected = folder, {r.name: r for r in runs}, selected
        self._jobs, self._lock = jobs, lock
        self._active: dict[str, tuple[Popen[bytes], float]] = {}  # by run; when it began
        self._known: set[str] = set()
        self._pending: list[PlannedRun] = []
        self._of = 0
        self.outcome = Outcome()

    def work(self, asked: Collection[str]) -> Outcome:
        """Do those of the plan that are asked for and are not done."""
        mine = [run for name, run in self._runs.items() if name in asked]
        self._pending = [run for run in mine if not self._done(run)]
        self.outcome.finished += [run.name for run in mine if run.name in self._known]
        self._of = len(self._pending)
        try:
            while self._pending or self._active:
                self._start_what_can()
                if not self._active:
                    break
                self._wait()
        finally:
            self._stop()
        self.outcome.waiting = [run.name for run in self._pending]
        return self.outcome

    def _done(self, run: PlannedRun) -> bool:
        """Whether a run is done, guided by the adversary that is selected now where one guides."""
        if run.name in self._known:
            return True
        done = self._folder.done(run)
        if done and run.selects:
            done = all(self._done(self._runs[need]) for need in run.needs)
            done = done and self._folder.guide_run(run) == self._guide_run(run)
        if done:
            self._known.add(run.name)
        return done

    def _guide_run(self, run: PlannedRun) -> str | None:
        if not run.selects:
            return run.guide_run
        selected = self._selected()
        return None if selected is None else selected.guide_run(run.seed)

    def _start_what_can(self) -> None:
        for run in list(self._pending):
            under_way = {other.name for other in self._pending} | self._active.keys()
            lost = [n for n in run.needs if n in self.outcome.failed or n in self.outcome.skipped]
            if lost:
                self._pending.remove(run)
                self.outcome.skipped.append(run.name)
                self._say(run, f"skipped: it needs {lost[0]}")
            elif len(self._active) < self._jobs and all(
                need in self._known or (need not in under_way and self._done(self._runs[need]))
                for need in run.needs
            ):
                self._pending.remove(run)
                self._begin(run)

    def _begin(self, run: PlannedRun) -> None:
        """Start what is missing of a run: `fit`, or what follows it alone."""
        folder, guide_run = self._folder, self._guide_run(run)
        commands = evaluation_commands(folder.study, run, folder.path)
        same_guide = folder.guide_run(run) == guide_run
        if not folder.fitted(run) or not same_guide:
            left, over = (folder.path / run.name / n for n in ("last.ckpt", "status.json"))
            resume = left.is_file() and not over.is_file() and same_guide
            how = ("--ckpt_path", "last") if resume else ("--overwrite",)
            commands.insert(0, fit_command(folder.study, run, folder.path, guide_run, how))
        log = folder.log(run.name)
        with named_errors(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                file.write(f"$ attnlight {' '.join(commands[0])}\n".encode())
                file.flush()
                process = Popen(
                    [*PROGRAM, *joined(commands)],
                    stdin=DEVNULL,
                    stdout=file,
                    stderr=STDOUT,
                    env=_environment(run.role, self._jobs),
                    pass_fds=(self._lock,),
                )
        self._active[run.name] = process, time.monotonic()

    def _wait(self) -> None:
        """Wait for a process to end, and take note of its run's."""
        while all(process.poll() is None for process, _ in self._active.values()):
            time.sleep(_POLL)
        for name, (process, began) in list(self._active.items()):
            if process.returncode is not None:
                del self._active[name]
                self._end(self._runs[name], process.returncode, time.monotonic() - began)

    def _end(self, run: PlannedRun, status: int, seconds: float) -> None:
        if status == 0 and self._done(run):
            # As large as the best epoch, and of no use to a run that is done.
            (self._folder.path / run.name / "last.ckpt").unlink(missing_ok=True)
            self._folder.keep_note(run, "finished", seconds)
            self.outcome.finished.append(run.name)
            self._say(run, f"finished in {minutes(seconds)}")
            return
        log = self._folder.log(run.name)
        why = self.outcome.failed[run.name] = _why(status, log.read_bytes())
        self._folder.keep_note(run, "failed", seconds)
        self._say(run, f"failed after {minutes(seconds)}: {why} ({log})")

    def _say(self, run: PlannedRun, what: str) -> None:
        left = len(self._pending) + len(self._active)
        print(f"[{self._of - left}/{self._of}] {run.name} {what}", flush=True)

    def _stop(self) -> None:
        """End what is going on, after an interruption."""
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


def minutes(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> minutes(90), minutes(12)
        ('1.5 min', '12 s')
    """
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _environment(role: str, jobs: int) -> Mapping[str, str]:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    own = {"OMP_NUM_THREADS": str(max(1, cores // jobs)), "WANDB_JOB_TYPE": role}
    # In a SLURM allocation of several tasks Lightning would wait for those that srun starts.
    return own | {key: value for key, value in os.environ.items() if key != "SLURM_NTASKS"}


def _why(status: int, log: bytes) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    if status == 0:
        return "it left no readable checkpoint, or not all records"
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it printed nothing")


def joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of several commands for one process."""
    return [word for command in commands for word in (_THEN, *command)][1:]


def first_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first of the commands that `joined` put together, and the words of the others.

    Example:
        >>> first_command(joined([["fit", "--run=a"], ["test"]]))
        (['fit', '--run=a'], ['test'])
    """
    end = words.index(_THEN) if _THEN in words else len(words)
    return list(words[:end]), list(words[end + 1 :])


def run_commands(words: Sequence[str]) -> int:
    """Run commands one after the other, until one fails.

    Args:
        words: The arguments of all, as `joined` puts them together.

    Returns:
        The exit status of the last one that ran.
    """
    import torch

    surroundings = dict(os.environ)
    status, left = 0, list(words)
    while left and not status:
        command, left = first_command(left)
        sys.argv[1:] = command  # with which Lightning starts other ranks
        status = main()
        # Lightning leaves a seed, a rank and a port there, which a second command would take over.
        os.environ.clear()
        os.environ.update(surroundings)
        gc.collect()
        if left and not status:
            print(f"$ attnlight {' '.join(first_command(left)[0])}", flush=True)
            if torch.distributed.is_initialized():  # a process is of one group of ranks in its life
                os.execv(PROGRAM[0], [*PROGRAM, *left])
    return status


if __name__ == "__main__":
    end_with_parent()
    sys.exit(run_commands(sys.argv[1:]))
