"""Run the command line, in processes of its own where DDP's launcher needs it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from attnlight.__main__ import main

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
CPU = ["--trainer.accelerator=cpu", "--trainer.devices=1"]
TWO = ["--trainer.accelerator=cpu", "--trainer.devices=2", "--trainer.strategy=ddp"]


def experiment(name: str) -> list[str]:
    return ["-c", f"{CONFIGS}/trainer.yaml", "-c", f"{CONFIGS}/experiments/{name}.yaml"]


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


def attnlight_on_one(*arguments: str, cwd: Path, **environment: str) -> None:
    """Run one command to its end on one device, in this process."""
    attnlight_here(*arguments, *CPU, cwd=cwd, **environment)


def attnlight_on_two(*arguments: str, cwd: Path, **environment: str) -> str:
    """Run one command on two devices to its end, and return what both ranks printed.

    `attnlight(*arguments, *TWO)` lets Lightning start the ranks, each importing for some seconds.
    """
    return on_two(main, [*arguments, *TWO], cwd=cwd, **environment)


def on_two(
    function: Callable[[list[str]], int], arguments: list[str], *, cwd: Path, **environment: str
) -> str:
    """Call a function in two ranks until both return 0, and return what both printed.

    The ranks are forked from a process that has imported all, told where they stand as by Lightning's
    launcher.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.preloaded"])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    common |= {"NODE_RANK": "0", "OMP_NUM_THREADS": "1"} | environment
    with TemporaryDirectory() as folder:
        said = [Path(folder, str(rank)) for rank in range(2)]
        ranks = [
            forks.Process(
                target=_as_rank,
                args=(
                    function,
                    arguments,
                    cwd,
                    os.environ | common | {"LOCAL_RANK": str(rank)},
                    file,
                ),
            )
            for rank, file in enumerate(said)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(600)
            process.kill()
        output = "".join(file.read_text() for file in said)
        assert [process.exitcode for process in ranks] == [0, 0], output[-6000:]
    return output


def _as_rank(
    function: Callable[[list[str]], int],
    arguments: list[str],
    cwd: Path,
    environment: Mapping[str, str],
    said: Path,
) -> None:
    """What a forked process does: call the function with output and surroundings of its own."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv = ["attnlight"]
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = function(arguments)
    atexit._run_exitfuncs()  # a forked process does not by itself
    sys.exit(status)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
