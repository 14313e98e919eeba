"""Hashes of texts, and of the files of a local corpus, which identify its content."""

import hashlib
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from attnlight.errors import InputError

_FRONT_MATTER = re.compile(rb"\s*---[\r\n]+(.*?)[\r\n]+---", re.DOTALL)


def text_digest(text: str | None) -> str:
    """Hash of a text, 16 hexadecimal digits."""
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]


def digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by their paths within the folder."""
    hashes, root = {}, folder.resolve()
    for file in files:
        try:
            state = file.stat()
            digest = _digest(file.resolve(), state.st_size, state.st_mtime_ns)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
        start = folder if file.is_relative_to(folder) else root  # `datasets` resolves the folder
        hashes[Path(os.path.relpath(file, start)).as_posix()] = digest
    return hashes


def description(folder: Path) -> dict[str, str]:
    """Hash of a folder's metadata that `datasets` reads, such as column types; empty without any."""
    names = ("README.md", ".huggingface.yaml", "dataset_infos.json")
    try:
        texts = {n: (folder / n).read_bytes() for n in names if (folder / n).is_file()}
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    front = _FRONT_MATTER.match(texts.pop("README.md", b""))
    parts = [*([front[1]] if front else []), *texts.values()]
    return {"description": hashlib.sha256(b"\0".join(parts)).hexdigest()} if parts else {}


@cache  # the splits of a corpus share their folder
def _digest(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
