"""Ranks end together: none is left when another was killed, at whatever moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from attnlight.cli.processes import require_cores
from tests.commands import QUIET, TWO, Refused, experiment, free_port, start, wait_for

START = 600  # for two processes to import all on a busy machine
SECONDS = 20  # Lightning looks at its children every 5 s
LAUNCHER = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def fit(folder: Path, *options: str) -> list[str]:
    sizes = ["--data.train_size=300", "--data.validation_size=60", "--data.test_size=60"]
    place = [f"--root={folder}", "--experiment=e", "--run=r", "--trainer.logger=false"]
    return ["fit", *experiment("planted_bilstm"), *sizes, *place, *QUIET, *options]


class Job:
    """Two ranks as Lightning starts them, which train for as long as they are let."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        command = fit(folder, *TWO, "--trainer.max_epochs=10000")
        with self.output.open("wb") as file:
            self.zero = psutil.Popen(
                [sys.executable, "-m", "attnlight", *command],
                cwd=folder,
                env={key: value for key, value in os.environ.items() if key not in LAUNCHER},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.one: psutil.Process | None = None

    def rank_one(self) -> psutil.Process:
        """The process of rank 1, waited for."""
        wait_for(lambda: self.zero.children() != [], START)
        (self.one,) = self.zero.children()
        return self.one

    def wait_for(self, words: str) -> None:
        wait_for(lambda: words in self.output.read_text(), START)

    def end(self) -> None:
        for process in (self.zero, self.one):
            if process is not None and process.is_running():
                process.kill()
        self.zero.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.end()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize(("training", "killed"), [(True, 1), (True, 0), (False, 0)])
def test_a_rank_ends_with_the_other(job: Job, training: bool, killed: int) -> None:
    """In training, and while rank 1 imports."""
    if training:
        job.wait_for("\n1/")
    one = job.rank_one()
    (job.zero, one)[killed].kill()
    if killed:
        assert job.zero.wait(SECONDS) == 2
        said = job.output.read_text()
        assert "attnlight: another process of this job has ended: look at its output" in said
        assert "Traceback" not in said
    wait_for(lambda: gone(one), SECONDS)


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_sigterm_ends_training_with_its_status(job: Job, both: bool) -> None:
    """Sent to rank 0 alone, and to all processes, as by `timeout` and `scancel`."""
    job.wait_for("\n1/")
    one = job.rank_one()
    for process in (one, job.zero) if both else (job.zero,):
        process.terminate()
    assert job.zero.wait(SECONDS) == 128 + signal.SIGTERM
    wait_for(lambda: gone(one), SECONDS)
    assert "Traceback" not in job.output.read_text()


@pytest.mark.ddp
@pytest.mark.slow
def test_a_rank_that_joins_ends_with_rank_zero(job: Job) -> None:
    one = job.rank_one()
    job.zero.suspend()  # so that rank 1 waits for it
    job.wait_for("GLOBAL_RANK: 1")
    time.sleep(1)
    assert not gone(one)
    job.zero.kill()
    assert job.zero.wait(SECONDS) != 0
    wait_for(lambda: gone(one), SECONDS)


@pytest.mark.ddp
@pytest.mark.slow
def test_a_rank_does_not_wait_for_ever_for_others_to_join(tmp_path: Path) -> None:
    """Started by another launcher, whose other rank never comes."""
    place = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "ATTNLIGHT_JOIN_TIMEOUT": "3"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = ["-m", "attnlight", *fit(tmp_path, *TWO)]
    alone = start(command, cwd=tmp_path, **place, **address)
    said, _ = alone.communicate(timeout=START)
    assert alone.returncode == 1, said
    (line,) = (line for line in said.splitlines() if line.startswith("attnlight: "))
    assert "ATTNLIGHT_JOIN_TIMEOUT" in line
    assert "Traceback" not in said


@pytest.mark.parametrize("seconds", ["0", "soon", "inf", "-3"])
def test_a_timeout_is_a_positive_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, seconds: str
) -> None:
    monkeypatch.setenv("ATTNLIGHT_JOIN_TIMEOUT", seconds)
    refused(*fit(tmp_path, *TWO), names=("ATTNLIGHT_JOIN_TIMEOUT", seconds), leaving=tmp_path)


class TestCores:
    def test_more_processes_than_cores_are_refused_before_anything_is_made(
        self, tmp_path: Path, refused: Refused
    ) -> None:
        words = fit(tmp_path, "--trainer.accelerator=cpu", "--trainer.devices=999")
        refused(*words, names=("trainer.devices", "999"), leaving=tmp_path)

    @pytest.mark.parametrize(("cores", "most"), [(1, 4), (2, 4), (8, 16)])
    def test_as_many_as_two_a_core_are_not(
        self, monkeypatch: pytest.MonkeyPatch, cores: int, most: int
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        require_cores("cpu", most)
        require_cores("cpu", "auto")
        require_cores("gpu", 999)  # Lightning counts those
        with pytest.raises(Exception, match=f"{most} processes"):
            require_cores("cpu", str(most + 1))
