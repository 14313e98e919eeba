"""The executor of studies on a SLURM cluster, by submitit."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from typing_extensions import override

from attnlight.errors import InputError, did_you_mean, one_line
from attnlight.storage.files import named_errors

_POLL = 1.0  # seconds in which calls are gathered into an array, and between polls of results
_GRACE = 15.0  # seconds that a result may take to appear on this machine


def slurm_parameters(given: Iterable[str]) -> dict[str, int | float | str]:
    """The parameters of `sbatch` by submitit's names, from words like `partition=gpu`.

    Raises:
        InputError: submitit is not installed, or a word has another form or an unknown name.
    """
    try:
        import submitit
    except ImportError as error:
        raise InputError("--slurm needs submitit: pip install 'attnlight[slurm]'.") from error
    generic = set(submitit.AutoExecutor._typed_parameters())
    specific = set(submitit.SlurmExecutor._valid_parameters())
    parameters: dict[str, int | float | str] = {}
    for word in given:
        key, equals, text = word.partition("=")
        if not equals or key not in generic | specific:
            hint = did_you_mean(key, generic | specific)
            raise InputError(f"--slurm has {word!r}{hint}; expected KEY=VALUE, as partition=gpu.")
        value: int | float | str = text
        if text.replace(".", "", 1).isdecimal():
            value = float(text) if "." in text else int(text)
        parameters[key if key in generic else f"slurm_{key}"] = value
    return parameters


class SlurmExecutor(Executor):
    """Runs calls as jobs of a SLURM cluster; calls that are submitted together form an array.

    The folder is that of submitit's pickles and of the jobs' output. It must belong to this user,
    because results are unpickled, and is made readable for this user only. Parameters are those of
    `submitit.AutoExecutor.update_parameters`.

    Raises:
        InputError: `sbatch` is missing, a parameter is refused, or the folder is another user's.
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
            raise InputError(f"--slurm: {one_line(error)}.") from error
        self._submitted = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._jobs: dict[Future[Any], Any] = {}
        self._missing: dict[Future[Any], float] = {}  # the time when a job left SLURM's queue
        self._closed = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._submitted.put((future, partial(fn, *args, **kwargs) if args or kwargs else fn))
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down after all jobs; with `cancel_futures` cancel them, running ones too."""
        if cancel_futures:
            for future in list(self._jobs):
                future.cancel()
        self._closed.set()
        if wait:
            self._thread.join()

    def _watch(self) -> None:
        while self._jobs or not self._submitted.empty() or not self._closed.is_set():
            time.sleep(_POLL)
            self._submit_all()
            # The pending and running jobs of this user.
            command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
            queue = subprocess.run(command, capture_output=True, text=True, check=False)
            queued = set(queue.stdout.split())
            for future, job in list(self._jobs.items()):
                if future.cancelled():
                    job.cancel(check=False)
                elif job.paths.result_pickle.exists():
                    error = job.exception()
                    future.set_exception(error) if error else future.set_result(job.result())
                elif queue.returncode or job.job_id in queued:
                    self._missing.pop(future, None)
                    continue
                elif time.monotonic() > self._missing.setdefault(future, time.monotonic()) + _GRACE:
                    future.set_exception(RuntimeError(f"SLURM ended job {job.job_id}"))
                else:
                    continue
                del self._jobs[future]

    def _submit_all(self) -> None:
        """Submit the calls since the last poll to SLURM."""
        new = [self._submitted.get() for _ in range(self._submitted.qsize())]
        calls = [call for call in new if not call[0].cancelled()]
        if not calls:  # submitit warns of an empty array
            return
        try:
            with self._submitit.batch():
                jobs = [self._submitit.submit(fn) for _, fn in calls]
        except (RuntimeError, OSError) as error:  # refused by sbatch
            for future, _ in calls:
                future.set_exception(error)
        else:
            self._jobs |= zip((future for future, _ in calls), jobs, strict=True)
