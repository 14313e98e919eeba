"""Ways in which a file on a disk is damaged, and users without rights."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534


def _flip(data: bytes, place: int, count: int, mask: int) -> bytes:
    changed = bytearray(data)
    for number in range(place, min(place + count, len(data))):
        changed[number] ^= mask
    return bytes(changed)


def _content(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": _content(lambda data: data[: len(data) // 2]),
    "empty": _content(lambda data: b""),
    "longer": _content(lambda data: data + b"\0"),
    "bytes": _content(lambda data: _flip(data, len(data) // 2, 40, 0xFF)),
    "bit": _content(lambda data: _flip(data, len(data) // 2, 1, 1)),
    "first": _content(lambda data: _flip(data, 0, 1, 1)),
    "last": _content(lambda data: _flip(data, len(data) - 1, 1, 0x80)),
    "missing": Path.unlink,
}


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that every user reaches, unlike those that pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="attnlight-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Be a user who may read what is in a folder and write nothing."""
    if os.geteuid():
        paths = [folder, *folder.rglob("*")]
        modes = [path.stat().st_mode for path in paths]
        try:
            for path, mode in zip(paths, modes, strict=True):
                path.chmod(mode & ~0o222)
            yield
        finally:
            for path, mode in zip(paths, modes, strict=True):
                path.chmod(mode)
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk on which no file grows larger; in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def make_read_only(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to open files for writing whose path holds `place`."""
    opened = os.open

    def read_only(path: Any, flags: int, *mode: int, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and place in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", read_only)
