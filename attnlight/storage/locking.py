"""Exclusive access to a run's folder, with removal of leftovers of killed processes."""

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
from attnlight.storage.files import LEFTOVER_GLOB, named_errors, require_no_links_out

_LOCK = ".lock"
_SHARD = ".*.rank*.arrow"
_LEFTOVERS = (
    *(LEFTOVER_GLOB.format(name) for name in ("*.ckpt", "*.yaml", "status.json", "wandb_id")),
    *(LEFTOVER_GLOB.format("predictions.parquet"), _SHARD),
    *(f"records/*/{LEFTOVER_GLOB.format('*.parquet')}", f"records/*/{_SHARD}"),
)
# `attnlight report` also writes there, without a lock, each file within seconds.
_LEFTOVERS_OF_REPORTS = [f"{kind}/**/{LEFTOVER_GLOB.format('*')}" for kind in ("figures", "report")]
_HOUR = 3600.0
# Results for which the folder of a failed run is kept.
_RESULTS = ("*.ckpt", "records/*/*.parquet", "predictions.parquet", "logs/*/metrics.csv")


@contextmanager
def sole_process(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes, creating it if it is missing.

    The operating system releases the lock when this process ends in any way. Temporary files of
    killed processes are removed first. A folder created here is removed again if an error ends the
    block before there is a result.

    Raises:
        InputError: Another process has locked it, the folder cannot be written or locked, a folder or
            the lock in it is a link that leads out of it, or its disk is full.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    lock = FileLock(folder / _LOCK)
    with named_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    require_no_links_out(folder)
    if (folder / _LOCK).is_symlink():  # filelock would say only that the system refuses it
        raise InputError(f"{folder / _LOCK} is a link; expected a file of attnlight: delete it.")
    # Without locks of the file system, filelock warns and treats an existing file as a lock.
    with named_errors(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"another process is using {folder}: wait for it, end it, or give another --run."
            ) from None
    if isinstance(lock, SoftFileLock):
        lock.release()
        raise InputError(
            f"the file system of {folder} does not support file locks, which protect a run from a "
            "second process: give a --root on another one."
        )
    try:
        leftovers = [path for pattern in _LEFTOVERS for path in folder.glob(pattern)]
        for pattern in _LEFTOVERS_OF_REPORTS:
            with suppress(OSError):  # a report may rename its file in the meantime
                found, before = folder.glob(pattern), time.time() - _HOUR
                leftovers += [path for path in found if path.stat().st_mtime < before]
        for path in leftovers:
            with suppress(OSError):
                path.unlink()
        yield
    except Exception as error:
        if missing and not any(list(folder.glob(pattern)) for pattern in _RESULTS):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another run may use it by now
                for parent in filter(Path.exists, missing):
                    parent.rmdir()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            raise InputError(f"{folder} cannot be written: {error.strerror}.") from error
        raise
    finally:
        lock.release()


def require_creatable(folder: Path) -> None:
    """Raise `InputError` if a folder's closest existing parent is a file or cannot be written."""
    with named_errors(folder):
        nearest = next(place for place in folder.parents if place.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
