"""Run the command line, in processes of its own where DDP's launcher needs it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
