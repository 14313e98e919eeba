"""The executor of studies on one machine."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import connection, forkserver, get_context
from multiprocessing.context import ForkServerProcess
from queue import SimpleQueue
from threading import Lock
from typing import Any

import torch
from typing_extensions import override

from attnlight.cli.processes import end_with_parent

_PATIENCE = 20.0  # seconds that an interrupted run may take to exit


class ProcessExecutor(ThreadPoolExecutor):
    """Starts each call in a new process, forked from one that has imported torch and Lightning.

    A call's result is the exit status of its process, negative if a signal ended it. The GPUs that
    this process sees are divided among the processes by `CUDA_VISIBLE_DEVICES`, and so are the
    CPU's cores. `jobs` is the number of concurrent processes; None: one for each GPU, or else for
    each core.
    """

    def __init__(self, jobs: int | None = None) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpus = [name for name in visible.split(",") if name]
        gpus = gpus or [str(number) for number in range(torch.cuda.device_count())]
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self.jobs = jobs or len(gpus) or cores
        super().__init__(self.jobs)
        self._environments = SimpleQueue[dict[str, str]]()
        environment = {"OMP_NUM_THREADS": str(max(1, cores // self.jobs))} | os.environ
        share = max(1, len(gpus) // self.jobs)
        for job in range(self.jobs):
            devices = {"CUDA_VISIBLE_DEVICES": ",".join((gpus * self.jobs)[job * share :][:share])}
            self._environments.put(environment | (devices if gpus else {}))
        self._context = get_context("forkserver")
        preload = ["attnlight.cli.lightning_cli", "attnlight.studies.job"]
        self._context.set_forkserver_preload(preload)
        threads = os.environ.get("OMP_NUM_THREADS")  # which libraries read on import
        os.environ["OMP_NUM_THREADS"] = environment["OMP_NUM_THREADS"]
        try:
            forkserver.ensure_running()
        finally:
            if threads is None:
                del os.environ["OMP_NUM_THREADS"]
        self._lock = Lock()  # starting a process polls all others, which is not thread-safe
        self._processes: set[ForkServerProcess] = set()

    @override
    def submit(  # type: ignore[override]
        self, fn: Callable[..., object], /, *args: Any, **kwargs: Any
    ) -> Future[int]:
        return super().submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., object], args: Any, kwargs: Any) -> int:  # noqa: ANN401
        environment = self._environments.get()
        process = self._context.Process(target=_call, args=(environment, fn, args, kwargs))
        try:
            with self._lock:
                self._start(process)
                self._processes.add(process)
            connection.wait([process.sentinel])
            with self._lock:
                process.join()
                self._processes.remove(process)
        finally:
            self._environments.put(environment)
        status = process.exitcode
        assert status is not None
        return status

    def _start(self, process: ForkServerProcess) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return process.start()
            except ConnectionError:  # the fork server was killed; the next attempt restarts it
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down; with `cancel_futures` running processes are terminated too."""
        if cancel_futures:
            super().shutdown(wait=False, cancel_futures=True)
            with self._lock:
                for process in self._processes:
                    process.terminate()
            deadline = time.monotonic() + _PATIENCE
            while self._processes and time.monotonic() < deadline:
                time.sleep(0.05)
            with self._lock:
                for process in self._processes:
                    process.kill()
        super().shutdown(wait)


def _call(
    environment: Mapping[str, str],
    fn: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Call a function in this new process with the given environment."""
    end_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    fn(*args, **kwargs)
