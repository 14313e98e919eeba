"""Folders that are written once and atomically, and checked when they are opened."""

import errno
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from attnlight.errors import InputError
from attnlight.storage.files import named_errors, write_text

MANIFEST = "manifest.json"  # size and CRC-32 of each file; written last
_PASSED = ".passed.json"  # files that passed the check, with their modification times
_PIECE = 1 << 20


def cache_root(folder: str | None = None) -> Path:
    """The folder of prepared corpora, see `CorpusOptions.cache_dir`."""
    named = folder or os.environ.get("ATTNLIGHT_CACHE")
    if named:
        return Path(named).expanduser()
    home = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (home if home.is_absolute() else Path("~/.cache").expanduser()) / "attnlight"


def prepare_once(target: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill the folder `target` unless it exists undamaged.

    Safe when several processes call it at once: one writes, the others wait. The content is written
    beside `target` and renamed at the end; leftovers of a killed process are removed. A damaged
    folder is replaced, with one line on stderr; a process that has its files open keeps reading the
    old ones.

    Raises:
        InputError: `target` cannot be read, or its parent folder cannot be created or written.
    """
    damage = find_damage(target)
    if damage is None:
        return
    lock = FileLock(f"{target}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        reason = f"{target} is damaged ({damage}) and " if damage else ""
        raise InputError(
            f"{reason}{target.parent} cannot be written: {error.strerror or error}; set "
            "ATTNLIGHT_CACHE to another folder."
        ) from error
    try:
        damage = find_damage(target)  # another process may have created it in the meantime
        if damage is None:
            return
        if damage:
            print(f"{target} is damaged ({damage}): preparing it again", file=sys.stderr)
        _write(target, write)
    finally:
        lock.release()


def find_damage(folder: Path) -> str | None:
    """The damage of a prepared folder: None if it is intact, an empty string if it does not exist.

    The size of each file is compared every time, its content once for each modification time: files
    that passed are recorded in the folder if it is writable.
    """
    if not os.path.lexists(folder):
        return ""
    passed, marks = None, {}
    with suppress(OSError, ValueError):  # size, CRC-32 and modification time of files that passed
        passed = json.loads((folder / _PASSED).read_text(encoding="utf-8"))
    passed = passed if isinstance(passed, dict) else {}
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, (size, crc) in files.items():
            path = folder / name
            state = path.stat()
            if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            if state.st_size != size:
                return f"{name} has {state.st_size} bytes; expected {size}"
            marks[name] = [size, crc, state.st_mtime_ns]
            if passed.get(name) != marks[name] and checksum(path) != crc:
                return f"the content of {name} has changed"
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        raise InputError(
            f"{error.filename or folder} cannot be read: {error.strerror or error}; delete {folder} "
            "or set ATTNLIGHT_CACHE to another folder."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is not readable"
    if passed != marks:
        with suppress(InputError):  # another user's cache: then every process checks it again
            write_text(folder / _PASSED, json.dumps(marks))
    return None


def checksum(path: Path) -> int:
    """CRC-32 of a file's content."""
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    return crc


def _write(target: Path, write: Callable[[Path], None]) -> None:
    # Under the lock, a folder with this prefix is the leftover of a killed process.
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with named_errors(target):
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        folder = scratch / "new"
        folder.mkdir()
        write(folder)
        paths = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
        files = {
            path.relative_to(folder).as_posix(): [path.stat().st_size, checksum(path)]
            for path in paths
        }
        write_text(folder / MANIFEST, json.dumps({"files": files}, indent=1))
        find_damage(folder)  # records the times, so that other users need not check again
        with named_errors(target):
            if os.path.lexists(target):
                target.rename(scratch / "old")
            folder.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
