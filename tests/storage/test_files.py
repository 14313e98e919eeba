"""Files are written whole or not at all."""

import os
import re
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from attnlight.errors import InputError
from attnlight.records import read_metadata
from attnlight.report.run import read_metrics
from attnlight.report.study.frame import read_study
from attnlight.storage.files import named_errors, read_yaml, replacing, write_text
from tests.damage import files_of_at_most


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writes_text_into_a_folder_that_was_missing(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "notes.txt", "Zoë\n")
    assert (tmp_path / "a/b/notes.txt").read_bytes() == b"Zo\xc3\xab\n"
    assert names(tmp_path / "a/b") == ["notes.txt"]


def test_the_old_file_stands_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == path.parent
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_a_failing_block_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["notes.txt"]


DOUBLED = b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 60))


class TestReadYaml:
    @pytest.mark.parametrize("load", [None, yaml.CSafeLoader])
    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"a: [1, 2", "line 1"),
            (b"- 1\n- 2\n", "a.yaml holds a list; expected a mapping"),
            ("# M\u00fcll".encode("latin-1"), "utf-8"),
            (b"a: " + b"[" * 100_000 + b"]" * 100_000, "nest"),  # or PyYAML says so itself
            (b"- " * 100_000 + b"a", "nested too deeply"),
            (b"a: &a [*a]", "nested too deeply"),
            (b"!!python/object/apply:os.getcwd []", "python/object"),
            (b"a: !!int x", "invalid literal"),
            (b"a: !!timestamp x", "not readable YAML"),
            (b"a: 2024-99-99", "not readable YAML: month"),
            (b"a0: &a0 [x, x]\n" + DOUBLED, "more than 1,000,000 values"),
        ],
    )
    def test_names_the_file(
        self, content: bytes, told: str, load: type | None, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.yaml"
        path.write_bytes(content)
        reader = None if load is None else partial(yaml.load, Loader=load)
        with pytest.raises(InputError, match=re.escape(told)) as raised:
            read_yaml(path, reader)
        assert str(path) in str(raised.value)

    def test_aliases_that_are_few_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text("a: &a {b: [1, 2]}\nc: *a\n")
        assert read_yaml(path) == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    "read",
    [
        lambda run: read_yaml(run / "fit.yaml"),
        lambda run: read_metadata(run / "fit.yaml"),
        lambda run: read_metrics(run / "logs"),
        lambda run: read_study(run),
    ],
    ids=["yaml", "record", "metrics", "study"],
)
def test_a_pipe_is_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "logs/version_0").mkdir(parents=True)
    for name in ("fit.yaml", "logs/version_0/metrics.csv", "study.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="not an ordinary file"):
        read(tmp_path)


def test_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "notes.txt", "x")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "notes.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("taken/notes.txt", r"taken/notes\.txt cannot be written"),
        ("folder", "folder cannot be written: Is a directory"),
        ("old.txt", r"old\.txt cannot be written: File too large"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_alone(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for there in ("taken", "old.txt"):
        (tmp_path / there).write_text("old")
    with files_of_at_most(1000), pytest.raises(InputError, match=words):
        write_text(tmp_path / name, "new" if "." not in name else "new " * 10_000)
    assert (tmp_path / "old.txt").read_text() == "old"
    assert names(tmp_path) == ["folder", "old.txt", "taken"]


def test_named_errors_keeps_other_errors() -> None:
    with pytest.raises(KeyError), named_errors(Path("x")):
        raise KeyError("mine")
    told = "x cannot be written: No space left"
    with pytest.raises(InputError, match=told), named_errors(Path("x")):
        raise OSError(28, "No space left on device")
