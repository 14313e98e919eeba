"""One process at a time on a shard of a study, and one study in a folder."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attnlight.errors import InputError
from attnlight.files import LEFTOVER, named_errors, write_text

PLAN = "plan.json"
_SCHEMA = 1
# The runs of a study that was killed end a moment after it, and hold its lock until then.
_PATIENCE = 5.0


@contextmanager
def working(folder: Path, shard: int, shards: int) -> Iterator[int]:
    """Hold a shard of a study.

    Args:
        folder: The study's folder, made where it is missing.
        shard: Number of the shard, from 1.
        shards: How many there are.

    Yields:
        The descriptor of the lock; a process that inherits it holds the shard too.

    Raises:
        InputError: Another process is at work on this shard, or on one of another number of shards.
    """
    with named_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    own = folder / f".lock-{shard}of{shards}"
    with _opened(folder / ".lock") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        _require_free(folder, own, shards)
        held = _open(own)
        if not _taken(held):
            os.close(held)
            raise InputError(
                f"another process is at work on {_named(own)} of {folder}: wait for it, or end it."
            )
    try:
        yield held
    finally:
        os.close(held)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for other shards that write what is collected of a study, whose folder is made.

    What one that was killed left half-written of it is removed.
    """
    with named_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder / ".lock-collect") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for left in folder.glob(LEFTOVER.format("study.*")):
            left.unlink()
        yield


def _require_free(folder: Path, own: Path, shards: int) -> None:
    for other in folder.glob(".lock-*of*"):
        if other == own or other.name.endswith(f"of{shards}"):
            continue
        with _opened(other) as held:
            if not _taken(held):
                raise InputError(
                    f"another process is at work on {_named(other)} of {folder}: all that work "
                    "there at a time must split it alike."
                )


def _named(lock: Path) -> str:
    part, _, whole = lock.name.removeprefix(".lock-").partition("of")
    return "the whole" if whole == "1" else f"shard {part}/{whole}"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    held = _open(path)
    try:
        yield held
    finally:
        os.close(held)


def _open(path: Path) -> int:
    with named_errors(path):
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _taken(descriptor: int) -> bool:
    """Lock a file, waiting a little for a holder that is about to end."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        else:
            return True


def require_same_plan(folder: Path, digests: Mapping[str, str]) -> None:
    """Refuse a folder that holds runs of another study.

    A study may grow or shrink: only a run that both have must be the same in both.

    Args:
        folder: The study's folder.
        digests: By run, a hash of all that decides it.

    Raises:
        InputError: A run differs, or what the folder holds cannot be read.
    """
    held = _held(folder)
    different = [name for name, digest in digests.items() if held.get(name, digest) != digest]
    if different or (held and not held.keys() & digests.keys()):
        which = f"{different[0]} differs" if different else "no run is the same"
        raise InputError(
            f"{folder} holds another study, or this one with other settings ({which}): give "
            "another --name or --root, or delete the folder."
        )


def keep_plan(folder: Path, digests: Mapping[str, str]) -> None:
    """Note which runs a folder holds, those of an earlier and larger plan among them.

    Raises:
        InputError: The file cannot be written.
    """
    held = _held(folder)
    both = held | dict(digests)
    if both != held:
        content = {"schema": _SCHEMA, "runs": both}
        write_text(folder / PLAN, json.dumps(content, indent=1) + "\n")


def _held(folder: Path) -> dict[str, str]:
    path = folder / PLAN
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, not {_SCHEMA}")
        return dict(content["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not what `attnlight study` writes: {error}.") from error
