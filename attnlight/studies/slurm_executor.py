"""The executor of studies on a SLURM cluster, by submitit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from typing_extensions import override

from attnlight.errors import InputError, did_you_mean
from attnlight.files import named_errors

_POLL = 1.0  # seconds in which calls still join an array, and between two looks at results
_GRACE = 15.0  # seconds that a result may take to reach this machine


def slurm_parameters(given: Iterable[str]) -> dict[str, int | float | str]:
    """What `sbatch` is told, by submitit's names, from words like `partition=gpu`.

    Raises:
        InputError: submitit is not installed, or a word is not of that form or names nothing known.
    """
    try:
        import submitit
    except ImportError as error:
        raise InputError("--slurm needs submitit: pip install 'attnlight[slurm]'.") from error
    generic = set(submitit.AutoExecutor._typed_parameters())
    specific = set(submitit.SlurmExecutor._valid_parameters())
    found: dict[str, int | float | str] = {}
    for word in given:
        key, equals, text = word.partition("=")
        if not equals or key not in generic | specific:
            hint = did_you_mean(key, generic | specific)
            raise InputError(f"--slurm has {word!r}{hint}; expected KEY=VALUE, as partition=gpu.")
        value: int | float | str = text
        if text.replace(".", "", 1).isdecimal():
            value = float(text) if "." in text else int(text)
        found[key if key in generic else f"slurm_{key}"] = value
    return found


class SlurmExecutor(Executor):
    """Does calls as jobs of a SLURM cluster; those that are submitted together are an array.

    Args:
        folder: Where submitit keeps what it pickles and what jobs print. It must be this user's own,
            because results are unpickled; nobody else may read what is there.
        parameters: Of `submitit.AutoExecutor.update_parameters`.

    Raises:
        InputError: There is no `sbatch` here, a parameter is refused, or the folder is another's.
    """

    def __init__(self, folder: Path, **parameters: float | str) -> None:
        import submitit

        with named_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        if folder.stat().st_uid != os.getuid():
            raise InputError(f"{folder} belongs to another user.")
        try:
            self._submitit = submitit.AutoExecutor(folder, cluster="slurm")
            self._submitit.update_parameters(**{"name": "attnlight"} | parameters)
        except (RuntimeError, AssertionError, NameError) as error:
            raise InputError(f"--slurm: {' '.join(str(error).split())}.") from error
        self._submitted = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._jobs: dict[Future[Any], Any] = {}
        self._missing: dict[Future[Any], float] = {}  # since when a job is not in SLURM's queue
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._submitted.put((future, partial(fn, *args, **kwargs) if args or kwargs else fn))
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End when all jobs have; with `cancel_futures` cancel them, those at work too."""
        if cancel_futures:
            for future in list(self._jobs):
                future.cancel()
        self._over.set()
        if wait:
            self._thread.join()

    def _watch(self) -> None:
        while self._jobs or not self._submitted.empty() or not self._over.is_set():
            time.sleep(_POLL)
            self._submit_all()
            queued = self._queued()
            for future, job in list(self._jobs.items()):
                if future.cancelled():
                    job.cancel(check=False)
                elif job.paths.result_pickle.exists():
                    error = job.exception()
                    future.set_exception(error) if error else future.set_result(job.result())
                elif queued is None or job.job_id in queued:
                    self._missing.pop(future, None)
                    continue
                elif time.monotonic() > self._missing.setdefault(future, time.monotonic()) + _GRACE:
                    future.set_exception(RuntimeError(f"SLURM ended job {job.job_id}"))
                else:
                    continue
                del self._jobs[future]

    def _submit_all(self) -> None:
        """Hand over to SLURM what was submitted since the last look."""
        calls = []
        with suppress(Empty):
            while True:
                calls.append(self._submitted.get_nowait())
        calls = [call for call in calls if not call[0].cancelled()]
        if not calls:  # submitit warns of an empty array
            return
        try:
            with self._submitit.batch():
                jobs = [self._submitit.submit(fn) for _, fn in calls]
        except (RuntimeError, OSError) as error:  # what sbatch has against it
            for future, _ in calls:
                future.set_exception(error)
        else:
            self._jobs |= zip((future for future, _ in calls), jobs, strict=True)

    def _queued(self) -> set[str] | None:
        """The jobs of this user that wait or run; None where SLURM does not tell."""
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if answer.returncode else set(answer.stdout.split())
