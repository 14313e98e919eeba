"""Which errors are told in one sentence, and which show where the program is wrong."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml
from lightning.pytorch.utilities.exceptions import MisconfigurationException

import attnlight.__main__ as program
from attnlight.cli import processes
from attnlight.errors import InputError
from tests.commands import in_forks
from tests.report.fake import write_run

LITTLE = (
    "there is not enough memory ({}): give a smaller --data.batch_size or --data.eval_batch_size, or "
    "a smaller model."
)
ALLOCATOR = "[enforce fail] DefaultCPUAllocator: can't allocate memory: 80000000000"
CONTROLS = r"the class 'a\x1b[31m\u202eb\r\n\x9b1m\ud800' is unknown."


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(program, "import_module", Mock(side_effect=error))


def system(number: int, *name: str) -> OSError:
    return OSError(number, os.strerror(number), *name)


LOST = "DataLoader worker (pid 7) is killed by signal: Killed"
WORKER = (
    "a process that loads batches was killed ({}), perhaps since memory ran out: give a smaller "
    "--data.num_workers."
)
PEER = "127.0.0.1"
RANK = (
    "another process of this job has ended: look at its output, and whether it was killed since "
    "memory ran out."
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InputError("the file a.yaml is wrong."), "the file a.yaml is wrong."),
        (InputError("the class 'a\x1b[31m\u202eb\r\n\x9b1m\ud800' is unknown."), CONTROLS),
        (MemoryError("17 GB"), LITTLE.format("17 GB")),
        (RuntimeError(ALLOCATOR), LITTLE.format(ALLOCATOR)),
        (RuntimeError(f"{LOST}. "), WORKER.format(LOST)),
        (RuntimeError(f"[gloo/pair.cc:537] Read error [{PEER}]: Connection reset by peer."), RANK),
        (RuntimeError(f"[gloo/pair.cc:553] Connection closed by peer [{PEER}]:20139"), RANK),
        (RuntimeError("remote process exited or there was a network error, NCCL 2.27"), RANK),
        (torch.OutOfMemoryError("CUDA out of memory."), LITTLE.format("CUDA out of memory")),
        (system(errno.ENOSPC), "No space left on device."),
        (system(errno.EROFS, "a/b"), "a/b: Read-only file system."),
        (system(errno.EACCES, "a/b"), "a/b: Permission denied."),
        (system(errno.EFBIG), "File too large."),
        (system(errno.ENAMETOOLONG, "a"), "a: File name too long."),
        (MisconfigurationException("`max_epochs` must\n  not be."), "`max_epochs` must not be."),
    ],
)
def test_what_the_user_can_mend_is_one_sentence(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, error)
    assert program.main(["report"]) == 2
    assert capsys.readouterr().err == f"attnlight: {told}\n"
    monkeypatch.setenv("ATTNLIGHT_DEBUG", "1")
    with pytest.raises(type(error)):
        program.main(["report"])


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        RuntimeError("a bug"),
        FileNotFoundError(errno.ENOENT, "a file that should be there"),
        system(errno.EBADF),
        ConnectionRefusedError(errno.ECONNREFUSED, "another process"),
        caused_by(KeyError("a bug"), system(errno.ENOSPC)),
        caused_by(KeyError("a bug"), MisconfigurationException("not what went wrong")),
    ],
)
def test_a_fault_of_the_program_is_not_hidden(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(type(error)):
        program.main(["report"])


def test_an_error_after_a_signal_is_that_of_the_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, RuntimeError("DataLoader worker is killed by signal: Terminated."))
    monkeypatch.setattr(processes, "_received", [signal.SIGTERM])
    assert program.main(["report"]) == 143
    assert capsys.readouterr().err == ""


def test_deep_nesting_is_told_where_a_reader_met_it_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forever(module: str) -> int:  # Python 3.13.0 does not end calls of defaults or `*_`
        return forever(module)

    monkeypatch.setattr(program, "import_module", lambda _: yaml.safe_load("[" * 1000))
    assert program.main(["report"]) == 2
    assert "nested too deeply" in capsys.readouterr().err
    monkeypatch.setattr(program, "import_module", forever)
    with pytest.raises(RecursionError):
        program.main(["report"])


def test_a_folder_whose_name_is_no_utf_8_is_named(tmp_path: Path) -> None:
    """As a file that another system wrote: neither Arrow nor the terminal can encode it."""
    run = write_run(tmp_path / "run", epochs=()).rename(tmp_path / os.fsdecode(b"M\xfcll"))
    given = ["report", str(run)]
    (status,), said = in_forks(program.main, given, cwd=tmp_path, environments=[dict(os.environ)])
    assert status == 2
    assert r"M\udcfcll" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["configs"]])
def test_a_reader_that_has_read_enough(words: list[str], buffered: str) -> None:
    """`attnlight configs | head -1` ends as `cat` does: by the status of SIGPIPE, without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    ended = subprocess.run(
        [sys.executable, "-m", "attnlight", *words],
        stdout=writing, stderr=subprocess.PIPE, env=environment, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("verb", ["", *program.USAGE, *program.OTHER_VERBS])
def test_help_fits_a_terminal_and_its_examples_are_lines(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if verb in program.OTHER_VERBS:
        with pytest.raises(SystemExit, match="0"):
            program.main([verb, "--help"])
    else:
        program.main([verb] if verb else ["--help"])
    said = "".join(capsys.readouterr())
    assert said
    assert not [line for line in said.splitlines() if len(line) > 80]
    examples = [line for line in said.splitlines() if f"attnlight {verb} " in line]
    for line in examples if verb in ("explain", "export", "browse") else ():
        assert line.startswith(("attnlight", "usage: "))
