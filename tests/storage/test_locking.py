"""One process at a time in a run's folder."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from attnlight.errors import InputError
from attnlight.storage.locking import require_creatable, sole_process
from tests.damage import make_read_only

HOLD = """
import os, sys, time
from pathlib import Path
from attnlight.storage.locking import sole_process

with sole_process(Path(sys.argv[1])):
    if not os.fork():  # as a worker that loads batches, once it has closed the parent's locks
        print(os.getpid(), flush=True)
    time.sleep(100)
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process at work in the folder, with a worker that outlives it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            yield process
        finally:
            process.kill()
            os.kill(worker, signal.SIGKILL)


def test_a_second_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "e" / "r"
    with another_process(folder) as process:
        with pytest.raises(InputError, match=f"another process is using {folder}:"):
            sole_process(folder).__enter__()
        with sole_process(tmp_path / "e" / "other"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with sole_process(folder):
            (folder / "fit.yaml").write_text("")
    assert (folder / "fit.yaml").is_file()


def test_the_same_process_enters_again_after_it_left(tmp_path: Path) -> None:
    for _ in range(2):
        with sole_process(tmp_path), pytest.raises(InputError, match="another process"):
            sole_process(tmp_path).__enter__()


@pytest.mark.parametrize("name", ["records", "records/test", ".lock"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    for folder in (victim, (run / name).parent):
        folder.mkdir(exist_ok=True, parents=True)
    (run / name).symlink_to(victim if name != ".lock" else victim / "new")
    with pytest.raises(InputError, match=rf"{name} is a link"):
        sole_process(run).__enter__()
    assert list(victim.iterdir()) == []


def test_a_run_and_folders_within_it_may_be_links(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "logs/run-1").mkdir(parents=True)
    (run / "logs/latest").symlink_to("run-1")
    (tmp_path / "link").symlink_to(run)
    with sole_process(tmp_path / "link"):
        assert (run / ".lock").is_file()


LEFT = [".last.ckpt.ab_cd012", ".best.ckpt.01234567", ".status.json.xyzxyzxy", ".fit.yaml.abcdefgh"]
LEFT += [".wandb_id.abcdefgh", ".predictions.rank0.arrow", ".predictions.parquet.abcdefgh"]
LEFT += ["records/val/.predictions-1.rank0.arrow", "records/test/.a.parquet.abcdefgh"]
STAY = [".fit.yaml.swp", ".notes", "best.ckpt", ".last.ckpt.bak", "records/val/.hidden"]
STAY += ["records/val/predictions-0.parquet"]
STAY += ["figures/test/.a.svg.abcdefgh", "report/.index.html.abcdefgh"]


def test_leftovers_of_killed_processes_go_and_nothing_else(tmp_path: Path) -> None:
    old = ["figures/test/.b.svg.abcdefgh", "report/.summary.csv.abcdefgh"]
    for name in [*LEFT, *STAY, *old]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("half")
    for name in old:
        os.utime(tmp_path / name, (time.time() - 4000,) * 2)
    with sole_process(tmp_path):
        there = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
        assert there == {*STAY, ".lock"}


class TestFolderThatWasMadeHere:
    @pytest.mark.parametrize(
        ("name", "kept"),
        [
            ("wandb_id", False),
            ("last.ckpt", True),
            ("records/val/predictions-0.parquet", True),
            ("logs/version_0/metrics.csv", True),
        ],
    )
    def test_stays_with_a_result_alone(self, tmp_path: Path, name: str, kept: bool) -> None:
        file = tmp_path / "root/e/r" / name

        def failing() -> None:
            with sole_process(tmp_path / "root/e/r"):
                (tmp_path / "root/e/r/logs/empty").mkdir(parents=True)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("x")
                raise RuntimeError("a bug")

        with pytest.raises(RuntimeError):
            failing()
        assert file.is_file() == kept
        assert (tmp_path / "root").exists() == kept

    def test_one_that_was_there_stays(self, tmp_path: Path) -> None:
        with pytest.raises(InputError), sole_process(tmp_path):
            raise InputError("no")
        assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("fault", "told"),
    [(errno.ENOSYS, "does not support file locks"), (errno.ENOLCK, "No locks available")],
)
def test_a_file_system_without_locks(
    fault: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(fault, os.strerror(fault))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=error))
    with pytest.raises(InputError, match=f"{tmp_path}.*{told}"):
        sole_process(tmp_path).__enter__()
    assert set(tmp_path.iterdir()) <= {tmp_path / ".lock"}


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_read_only(str(tmp_path), monkeypatch)
    with pytest.raises(InputError, match="cannot be written: Read-only"):
        sole_process(tmp_path).__enter__()


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/e/r cannot be written: Not a directory"):
        require_creatable(tmp_path / "file/e/r")
    require_creatable(tmp_path / "not/yet")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        require_creatable(tmp_path / "not/yet")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_names_the_run_where_the_error_names_no_file(tmp_path: Path) -> None:
    """As `close` raises it for a file that Lightning's loggers write."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = f"{tmp_path / 'run'} cannot be written: No space left"
    with pytest.raises(InputError, match=said), sole_process(tmp_path / "run"):
        raise full
