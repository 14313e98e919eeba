"""Jobs in processes of their own, and what becomes of those that are killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing import forkserver
from pathlib import Path

import pytest

from attnlight.studies.process_executor import ProcessExecutor

pytestmark = pytest.mark.slow  # the first process of a session imports torch and Lightning


@pytest.fixture
def pair() -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(2)
    yield executor
    executor.shutdown(cancel_futures=True)


def write_environment(path: Path) -> None:
    names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LEFT_BEHIND")
    path.write_text(" ".join(os.environ.get(name, "-") for name in names) + f" {os.getpid()}")
    os.environ["LEFT_BEHIND"] = "1"


def wait_here(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(600)


def started(path: Path) -> int:
    while not (path.is_file() and path.read_text()):
        time.sleep(0.05)
    return int(path.read_text())


def test_each_call_has_a_process_of_its_own(pair: ProcessExecutor, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    futures = [pair.submit(write_environment, path) for path in paths]
    assert [future.result() for future in futures] == [0, 0, 0]
    words = [path.read_text().split() for path in paths]
    assert len({process for *_, process in words}) == 3
    assert all(left == "-" for _, _, left, _ in words)


def test_result_is_the_exit_status(pair: ProcessExecutor) -> None:
    assert pair.submit(os._exit, 3).result() == 3
    assert pair.submit(int, "f", base=16).result() == 0, "keywords reach the call"
    assert pair.submit(int, "none").result() == 1, "an exception"


def test_gpus_are_dealt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    def dealt(jobs: int | None) -> list[str]:
        executor, paths = ProcessExecutor(jobs), [tmp_path / str(n) for n in range(6)]
        with executor:
            for path in paths:
                executor.submit(write_environment, path)
        assert {path.read_text().split()[0] for path in paths} == {"3"}
        return sorted({path.read_text().split()[1] for path in paths})

    assert dealt(2) == ["4,5", "6,7"]
    assert dealt(None) == ["4", "5", "6", "7"]
    assert dealt(6) == ["4", "5", "6", "7"]


def test_killed_process_leaves_the_other(pair: ProcessExecutor, tmp_path: Path) -> None:
    first, second = (pair.submit(wait_here, tmp_path / name) for name in "ab")
    os.kill(started(tmp_path / "a"), signal.SIGKILL)
    assert first.result(60) == -signal.SIGKILL
    assert not second.done()
    os.kill(started(tmp_path / "b"), signal.SIGTERM)
    assert second.result(60) == -signal.SIGTERM


def test_killed_server_is_started_again(pair: ProcessExecutor, tmp_path: Path) -> None:
    future = pair.submit(wait_here, tmp_path / "a")
    started(tmp_path / "a")
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert future.result(60) == 255
    assert pair.submit(write_environment, tmp_path / "b").result(120) == 0


def test_shutdown_ends_what_is_at_work(tmp_path: Path) -> None:
    executor = ProcessExecutor(1)
    first: Future[int] = executor.submit(wait_here, tmp_path / "a")
    second = executor.submit(wait_here, tmp_path / "b")
    process = started(tmp_path / "a")
    executor.shutdown(cancel_futures=True)
    assert first.result() == -signal.SIGTERM
    assert second.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
