"""Folders that are written once, whole or not at all, whoever comes first."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from attnlight.files import named_errors


def prepare_once(target: Path, marker: str, write: Callable[[Path], None]) -> None:
    """Make the folder `target` unless it is there.

    Safe when several processes start cold: one writes, the others wait for it. The content is
    written beside `target` and takes its name at the end, so that what a killed process leaves is
    never taken for it; the next one removes it.

    Args:
        target: The folder.
        marker: A file that `write` makes; a folder without it was not made here.
        write: Fills an empty folder.

    Raises:
        InputError: The folder that is to hold `target` cannot be made or written.
    """
    if (target / marker).is_file():
        return
    lock = FileLock(f"{target}.lock")
    with named_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        if not (target / marker).is_file():
            _write(target, write)
    finally:
        lock.release()


def _write(target: Path, write: Callable[[Path], None]) -> None:
    # The lock is held: whatever carries this prefix was left by a process that was killed.
    for left in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        write(folder)
        folder.chmod(0o755)  # mkdtemp's is private; other users may share the cache
        shutil.rmtree(target, ignore_errors=True)
        os.replace(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
