import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnlight.data.prepared import prepare_once
from attnlight.errors import InputError

WRITER = """
import sys, time
from pathlib import Path
from attnlight.data.prepared import prepare_once

target, seconds = Path(sys.argv[1]), float(sys.argv[2])

def write(folder: Path) -> None:
    (folder / "corpus.json").write_text("half")
    print("begun", flush=True)
    time.sleep(seconds)
    (folder / "corpus.json").write_text("whole")

prepare_once(target, "corpus.json", write)
print((target / "corpus.json").read_text())
"""


def start(target: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(target), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def write(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("whole")
    (folder / "corpus.json").write_text("whole")


def test_the_folder_is_written_once(tmp_path: Path) -> None:
    target, calls = tmp_path / "cache" / "corpus", []

    def note_and_write(folder: Path) -> None:
        calls.append(folder)
        write(folder)

    for _ in range(2):
        prepare_once(target, "corpus.json", note_and_write)
    assert len(calls) == 1
    assert (target / "data" / "x").read_text() == "whole"
    assert sorted(path.name for path in target.parent.iterdir()) == ["corpus", "corpus.lock"]
    assert target.stat().st_mode & 0o755 == 0o755


def test_of_processes_that_start_cold_one_writes(tmp_path: Path) -> None:
    processes = [start(tmp_path / "corpus", 0.5) for _ in range(3)]
    said = sorted(process.communicate(timeout=60)[0] for process in processes)
    assert said == ["begun\nwhole\n", "whole\n", "whole\n"]


def test_what_a_killed_process_left_is_no_corpus(tmp_path: Path) -> None:
    target = tmp_path / "corpus"
    process = start(target, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.kill()
    process.wait()
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] != []

    started = time.monotonic()
    prepare_once(target, "corpus.json", write)
    assert time.monotonic() - started < 5  # the lock died with its process
    assert (target / "corpus.json").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["corpus"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write(folder)
        raise InputError("the source is odd")

    with pytest.raises(InputError, match="the source is odd"):
        prepare_once(tmp_path / "corpus", "corpus.json", fail)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_folder_without_the_marker_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "stale").write_text("")
    prepare_once(tmp_path / "corpus", "corpus.json", write)
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == ["corpus.json", "data"]


def test_a_cache_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/cache cannot be written"):
        prepare_once(tmp_path / "file" / "cache" / "corpus", "corpus.json", write)
