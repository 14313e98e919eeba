"""Run the command line, in processes of its own where DDP's launcher needs it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import yaml

from attnlight.__main__ import main

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
CPU = ["--trainer.accelerator=cpu", "--trainer.devices=1"]
NO_FIGURE = "--trainer.callbacks.figures=false"  # of the last test that is attached
TWO = ["--trainer.accelerator=cpu", "--trainer.devices=2", "--trainer.strategy=ddp"]
Printed = Refused = Callable[..., str]  # the fixtures `printed` and `refused`


def experiment(name: str) -> list[str]:
    return ["-c", f"{CONFIGS}/trainer.yaml", "-c", f"{CONFIGS}/experiments/{name}.yaml"]


def attached(*names: str) -> list[str]:
    """The options that attach the tests of some shipped files."""
    return [word for name in names for word in ("-c", f"{CONFIGS}/tests/{name}.yaml")]


def without_figures(path: str | Path, *names: str) -> list[str]:
    """The option that attaches tests of some shipped files, which then draw nothing.

    Args:
        path: Where the files are written as one.
        names: Of the files.
    """
    files = [yaml.safe_load((CONFIGS / f"tests/{name}.yaml").read_text()) for name in names]
    tests = [test for file in files for test in file["trainer"]["callbacks+"]]
    for test in tests:
        test["init_args"] = test.get("init_args", {}) | {"figures": False}
    trainer = {"inference_mode": False, "callbacks+": tests}
    Path(path).write_text(yaml.safe_dump({"trainer": trainer}))
    return ["-c", str(path)]


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file in a folder but locks, and every folder."""
    paths = (path for path in folder.rglob("*") if path.name != ".lock")
    states = ((path, path.is_file(), path.stat()) for path in paths)
    return {
        str(path.relative_to(folder)): (state.st_size, state.st_mtime_ns) if is_file else (0, 0)
        for path, is_file, state in states
    }


def start(arguments: Sequence[str], *, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], Any], seconds: float = 600) -> Any:
    """What a condition gives once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == status, output[-6000:]
    return output


def attnlight(*arguments: str, cwd: Path, status: int = 0, **environment: str) -> str:
    """Run one command to its end, check its exit status and return what it printed."""
    return finish(start(["-m", "attnlight", *arguments], cwd=cwd, **environment), status)


def attnlight_here(*arguments: str, cwd: Path, **environment: str) -> None:
    """Run one command to its end in this process, where a fresh one would only import all again."""
    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        os.environ.update(environment)
        try:
            assert main([*arguments]) == 0
        finally:
            # Lightning leaves a seed and a port there, which processes started later would take over.
            os.environ.clear()
            os.environ.update(before)


def attnlight_on(devices: int, *arguments: str, cwd: Path, **environment: str) -> str | None:
    """What all ranks of a command print, run on some devices; on one it runs in this process."""
    if devices == 1:
        attnlight_here(*arguments, *CPU, cwd=cwd, **environment)
        return None
    given = [*TWO, f"--trainer.devices={devices}"]
    return on_ranks(devices, main, [*arguments, *given], cwd=cwd, **environment)


attnlight_on_one, attnlight_on_two = partial(attnlight_on, 1), partial(attnlight_on, 2)


def on_ranks(
    ranks: int,
    function: Callable[[list[str]], int],
    arguments: list[str],
    *,
    cwd: Path,
    **environment: str,
) -> str:
    """What ranks print, forked from a process with all imports, whose calls must all return 0."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"NODE_RANK": "0", "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)} | environment
    places = [os.environ | common | {"LOCAL_RANK": str(rank)} for rank in range(ranks)]
    statuses, output = in_forks(function, arguments, cwd=cwd, environments=places)
    assert statuses == [0] * ranks, output[-6000:]
    return output


def in_forks(
    function: Callable[[list[str]], int],
    arguments: list[str],
    *,
    cwd: Path,
    environments: Sequence[Mapping[str, str]],
) -> tuple[list[int | None], str]:
    """Exit statuses and output of calls in processes forked with all imports, by environment."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.preloaded"])
    with TemporaryDirectory() as folder:
        printed = [Path(folder, str(place)) for place in range(len(environments))]
        processes = [
            forks.Process(target=_in_fork, args=(function, arguments, cwd, environment, file))
            for environment, file in zip(environments, printed, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(600)
            process.kill()
        output = "".join(file.read_text() for file in printed if file.exists())
        return [process.exitcode for process in processes], output


def _in_fork(
    function: Callable[[list[str]], int],
    arguments: list[str],
    cwd: Path,
    environment: Mapping[str, str],
    printed: Path,
) -> None:
    """What a forked process does: call the function with output and surroundings of its own."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    torch.set_num_threads(1)
    sys.argv = ["attnlight"]
    with printed.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = function(arguments)
    atexit._run_exitfuncs()  # a forked process does not by itself
    sys.exit(status)


def run_script(arguments: list[str]) -> int:
    """Run a Python file as `python FILE` does."""
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
