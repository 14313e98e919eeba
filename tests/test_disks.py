"""Commands on a disk that is full and on one that is read-only: a sentence, and nothing lost.

Each is mounted for one process alone, which needs the rights of an administrator.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlight.__main__ import main
from attnlight.records import read_record
from attnlight.storage.checkpoint_file import read_checkpoint
from attnlight.storage.files import read_json, read_yaml
from tests.cli.test_export import write_run
from tests.commands import CONFIGS, content, in_forks
from tests.studies.conftest import MINIMAL
from tests.test_mistakes import AGAIN, BEST, FIT, RUN, corpus, described

UNPRIVILEGED = 77
CLONE_NEWNS = 0x20000  # of sched.h: mounts of this process alone
SIZE = 8_000_000
VERBS = {
    "fit": [*FIT, "--run=x"],
    "fit on": [*AGAIN, "--ckpt_path=last", "--trainer.max_epochs=2"],
    "test": ["test", RUN, "--tests=attention_permutation"],
    "predict": ["predict", RUN],
    "report": ["report", RUN],
    "export": ["export", "marked"],
    "study": ["study", "study.yaml"],
}
REASONS = (["No space left on device"], ["Read-only file system", "Permission denied"])
READERS: dict[str, Callable[[Path], Any]] = {
    ".yaml": read_yaml,
    ".json": read_json,
    ".ckpt": read_checkpoint,
    ".parquet": read_record,
    ".svg": lambda path: path.read_text().endswith("</svg>\n"),
    ".log": Path.read_text,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A corpus and a run with records."""
    world = tmp_path_factory.mktemp("world")
    corpus(world / "corpus")
    described(world / "corpus.yaml", f"{world}/corpus")
    with chdir(world):
        assert main(AGAIN) == 0
        tests = [f"--tests={CONFIGS}/tests/predictions.yaml", BEST]
        assert main(["test", "-c", f"{RUN}/fit.yaml", *tests]) == 0
        write_run(world / "marked")
        (world / "study.yaml").write_text(yaml.safe_dump(MINIMAL))
        yield world


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def on_disk(arguments: list[str]) -> int:
    """Run a command on a copy of the world, on a disk with some bytes left or, "ro", read-only."""
    left, world, *words = arguments
    place = Path.cwd()
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        return UNPRIVILEGED
    try:
        mount("--make-rprivate", "/")
        mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place))
    except subprocess.CalledProcessError:
        return UNPRIVILEGED
    shutil.copytree(world, place, dirs_exist_ok=True)
    os.chdir(place)  # of what is mounted there
    if left == "ro":
        mount("-o", "remount,ro", str(place))
    else:
        with Path("filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        os.truncate("filler", Path("filler").stat().st_size - int(left))
    before = content(place)
    status = main(words)
    require_whole(place, before)
    return status


def require_whole(place: Path, before: dict[str, tuple[int, int]]) -> None:
    """Check that every file is there, and that those that were written are complete."""
    after = content(place)
    assert before.keys() <= after.keys() | {f"{RUN}/status.json"}  # that of the training before
    for name in (name for name, state in after.items() if before.get(name) != state):
        path = place / name
        if path.is_file():
            assert path.suffix in READERS, name
            assert READERS[path.suffix](path)


@pytest.mark.parametrize(
    ("verb", "left"),
    [(verb, left) for verb in VERBS for left in ("0", "ro")]
    + [(verb, "20480") for verb in ("fit", "fit on", "test")],
)
def test_one_sentence(verb: str, left: str, world: Path, tmp_path: Path) -> None:
    given = [left, str(world), *VERBS[verb]]
    (status,), printed = in_forks(on_disk, given, cwd=tmp_path, environments=[dict(os.environ)])
    if status == UNPRIVILEGED:
        pytest.skip("mounts nothing")
    assert status == 2, printed
    (line,) = (line for line in printed.splitlines() if line.startswith("attnlight: "))
    assert any(reason in line for reason in REASONS[left == "ro"]), line
    assert "Traceback" not in printed
