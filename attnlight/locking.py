"""One process at a time in a run's folder, which clears away what killed ones left there."""

from __future__ import annotations

import errno
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from attnlight.errors import InputError
from attnlight.files import LEFTOVER, named_errors

_LOCK = ".lock"
_SHARD = ".*.rank*.arrow"
_LEFTOVERS = (
    *(LEFTOVER.format(name) for name in ("*.ckpt", "*.yaml", "status.json", "wandb_id")),
    *(LEFTOVER.format("predictions.parquet"), _SHARD),
    *(f"records/*/{LEFTOVER.format('*.parquet')}", f"records/*/{_SHARD}"),
)
# `attnlight report` takes no lock and writes there too, each file within seconds.
_LEFTOVERS_OF_REPORTS = (f"figures/**/{LEFTOVER.format('*')}", f"report/**/{LEFTOVER.format('*')}")
_HOUR = 3600.0
# What is worth keeping of a run that was refused or failed.
_RESULTS = ("*.ckpt", "records/*/*.parquet", "predictions.parquet", "logs/*/metrics.csv")


@contextmanager
def sole_process(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder, which is made where it is missing.

    The operating system holds the lock, and lets go of it when this process ends, however it ends.
    What killed processes left half-written is removed first. A folder that was made here is removed
    again when an error ends the block before there is a result.

    Args:
        folder: The run's folder.

    Raises:
        InputError: Another process is at work there, or the folder cannot be written or locked.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    lock = FileLock(folder / _LOCK)
    with named_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _acquire(lock, folder)
    try:
        left = [path for pattern in _LEFTOVERS for path in folder.glob(pattern)]
        for pattern in _LEFTOVERS_OF_REPORTS:
            with suppress(OSError):  # a report may rename its file meanwhile
                left += [p for p in folder.glob(pattern) if time.time() - p.stat().st_mtime > _HOUR]
        for path in left:
            with suppress(OSError):
                path.unlink()
        yield
    except Exception:
        if missing and not any(list(folder.glob(pattern)) for pattern in _RESULTS):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # one that another run uses by now
                for place in filter(Path.exists, missing):
                    place.rmdir()
        raise
    finally:
        lock.release()


def require_place(folder: Path) -> None:
    """Refuse a folder that cannot be made, without making it.

    Raises:
        InputError: What is to hold it is a file, or cannot be written.
    """
    with named_errors(folder):
        nearest = next(place for place in folder.parents if place.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _acquire(lock: FileLock, folder: Path) -> None:
    # Without locks of the file system, filelock warns and treats an existing file as a lock.
    locks = True
    with named_errors(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"another process is at work in {folder}: wait for it, end it, or give another "
                "--run."
            ) from None
        except NotImplementedError:  # what filelock before 3.20 does instead
            locks = False
    if not locks or isinstance(lock, SoftFileLock):
        lock.release()
        raise InputError(
            f"the file system of {folder} has no file locks, which keep two processes out of one "
            "run: give a --root on another."
        )
