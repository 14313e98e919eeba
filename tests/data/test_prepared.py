import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from attnlight.data import prepared
from attnlight.data.prepared import MANIFEST, cache_root, checksum, find_damage, prepare_once
from attnlight.errors import InputError
from tests.damage import DAMAGES, folder_for_all, without_rights

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

prepare_once(target, write)
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
    target, once = tmp_path / "cache" / "corpus", Mock(side_effect=write)
    for _ in range(2):
        prepare_once(target, once)
    once.assert_called_once()
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

    prepare_once(target, write)  # the lock died with its process
    assert (target / "corpus.json").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["corpus"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the source is odd"):
        prepare_once(tmp_path / "corpus", Mock(side_effect=InputError("the source is odd")))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/cache cannot be written"):
        prepare_once(tmp_path / "file" / "cache" / "corpus", write)


class TestDamage:
    """A damaged folder is made anew with one line, whatever its damage."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        prepare_once(tmp_path / "corpus", write)
        return tmp_path / "corpus"

    @pytest.mark.parametrize("name", ["corpus.json", "data/x", MANIFEST])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_is_mended(
        self, folder: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        manifest = (folder / MANIFEST).read_bytes()
        DAMAGES[damage](folder / name)
        prepare_once(folder, write)
        lines = capsys.readouterr().err.splitlines()
        if name == MANIFEST and damage in ("longer", "last"):  # what it says may still be read
            assert len(lines) <= 1
        else:
            assert len(lines) == 1
            assert str(folder) in lines[0]
            assert Path(name).name in lines[0] or name == MANIFEST  # its bit blames another file
            assert (folder / MANIFEST).read_bytes() == manifest
        assert (folder / "corpus.json").read_text() == "whole"
        assert (folder / "data" / "x").read_text() == "whole"
        assert find_damage(folder) is None
        assert sorted(path.name for path in folder.parent.iterdir()) == ["corpus", "corpus.lock"]

    def test_no_bit_of_the_manifest_hides_damage(self, folder: Path) -> None:
        path = folder / MANIFEST
        data = path.read_bytes()
        for place in range(0, 8 * len(data), 7):
            flipped = bytearray(data)
            flipped[place // 8] ^= 1 << place % 8
            path.write_bytes(flipped)
            if find_damage(folder) is None:
                assert json.loads(flipped)["files"] == json.loads(data)["files"]

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_of_what_passed_is_harmless(self, folder: Path, damage: str) -> None:
        DAMAGES[damage](folder / ".passed.json")
        assert find_damage(folder) is None
        DAMAGES["bit"](folder / "data" / "x")
        assert find_damage(folder) == "the content of data/x has changed"

    def test_a_folder_or_file_in_place_of_the_other(self, folder: Path) -> None:
        shutil.rmtree(folder / "data")
        (folder / "data").write_text("")
        prepare_once(folder, write)
        assert (folder / "data" / "x").read_text() == "whole"
        shutil.rmtree(folder)
        folder.write_text("")
        prepare_once(folder, write)
        (folder / MANIFEST).unlink()
        (folder / "stale").write_text("")
        prepare_once(folder, write)
        assert (folder / "data" / "x").read_text() == "whole"
        assert not (folder / "stale").exists()

    def test_content_is_read_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read = Mock(side_effect=checksum)
        monkeypatch.setattr(prepared, "checksum", read)
        prepare_once(folder, write)
        read.assert_not_called()
        os.utime(folder / "data" / "x", ns=(10**18, 10**18))
        for _ in range(2):
            prepare_once(folder, write)
        read.assert_called_once_with(folder / "data" / "x")

    def test_what_cannot_be_made_anew_stays(self, folder: Path) -> None:
        DAMAGES["bit"](folder / "data" / "x")
        with pytest.raises(InputError, match="the source is gone"):
            prepare_once(folder, Mock(side_effect=InputError("the source is gone")))
        assert (folder / "data" / "x").exists()


class TestRights:
    """The cache of another user is read; where that does not do, a sentence says so."""

    def test_whole_or_damaged(self) -> None:
        with folder_for_all() as place:
            prepare_once(place / "corpus", write)
            os.utime(place / "corpus" / "data" / "x", ns=(10**18, 10**18))
            with without_rights(place):
                prepare_once(place / "corpus", write)
            assert (place / "corpus" / "data" / "x").stat().st_mtime_ns == 10**18  # not made anew
            DAMAGES["bit"](place / "corpus" / "data" / "x")
            refused = pytest.raises(InputError, match=r"data/x has changed.*ATTNLIGHT_CACHE")
            with without_rights(place), refused:
                prepare_once(place / "corpus", write)

    @pytest.mark.parametrize("name", ["corpus.json", "data", "data/x", MANIFEST, "."])
    def test_unreadable(self, name: str) -> None:
        with folder_for_all() as place:
            prepare_once(place / "corpus", write)
            (place / "corpus" / name).chmod(0)
            refused = pytest.raises(InputError, match=r"cannot be read: Perm.*ATTNLIGHT_CACHE")
            with without_rights(place / "none"), refused:
                prepare_once(place / "corpus", write)


@pytest.mark.parametrize(
    ("given", "attnlight", "xdg", "root"),
    [
        ("/given", "/named", "/xdg", "/given"),
        (None, "/named", "/xdg", "/named"),
        (None, "~/named", None, "/home/someone/named"),
        (None, None, "/xdg", "/xdg/attnlight"),
        (None, "", "", "/home/someone/.cache/attnlight"),
        (None, None, "relative", "/home/someone/.cache/attnlight"),  # invalid by the standard
        (None, None, None, "/home/someone/.cache/attnlight"),
    ],
)
def test_root(
    monkeypatch: pytest.MonkeyPatch, given: str | None, attnlight: Any, xdg: Any, root: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for name, value in (("ATTNLIGHT_CACHE", attnlight), ("XDG_CACHE_HOME", xdg)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert cache_root(given) == Path(root)
