"""Files that are written whole or not at all, and YAML whose errors name its file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnlight.errors import InputError, did_you_mean, one_line

# By the name of a file, the glob of what a killed process leaves of one that it was writing.
LEFTOVER = ".{}.????????"
_DEEPEST, _MOST_VALUES = 100, 1_000_000  # of a configuration


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into an `InputError` that names the file being written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path in the folder of `path` that takes its place when the block ends well.

    The content reaches the disk before the name changes, so a crash at any moment leaves either
    the old file or the new one. When the block fails the temporary file is removed.

    Args:
        path: The file to write; its folder is made where it is missing.

    Raises:
        InputError: The disk is full, a size limit is met, or the folder cannot be written.
    """
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        temporary.touch(exist_ok=False)
    try:
        with named_errors(path):
            yield temporary
            _synchronise(temporary)
            temporary.replace(path)
            _synchronise(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def nearest_file(path: Path) -> str:
    """A question in brackets that names the file beside a missing one that is nearest, or nothing.

    Example:
        >>> nearest_file(Path(__file__).with_name("fils.py"))
        " (did you mean 'files.py'?)"
    """
    there = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    return did_you_mean(path.name, there)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_yaml(path: Path, load: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Content of a YAML file that holds a mapping, plain values only.

    Args:
        path: The file.
        load: Reads the text; None: as PyYAML does.

    Raises:
        InputError: The file is missing, no UTF-8, no YAML, no mapping, nested too deeply, or one
            whose aliases make it larger than memory.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if _count_nodes(text) > _MOST_VALUES:
            raise InputError(
                f"{path} holds more than {_MOST_VALUES:,} values, its aliases written out."
            )
        content = (load or yaml.safe_load)(text)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}{nearest_file(path)}.") from None
    except RecursionError:
        raise InputError(f"{path} is no readable YAML: it is nested too deeply.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} is no readable YAML: {one_line(error)}.") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{path} holds a {kind}; expected a mapping of names to values.")
    return content


def _count_nodes(text: str) -> int:
    """Keys and values that YAML holds, aliases written out, counted before anything is built of it.

    PyYAML's loader in C would overflow the stack on deep nesting, and aliases of aliases the memory.

    Raises:
        RecursionError: It is nested deeper than any configuration, or holds itself.
    """
    import yaml

    anchored: dict[str, tuple[int, int]] = {}  # nodes, and how deep they are nested
    parents: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # the same of what is still open
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if len(parents) + parents[-1][2] > _DEEPEST:
            raise RecursionError
        anchor, nodes, depth = getattr(event, "anchor", None), 1, 0
        if isinstance(event, yaml.CollectionStartEvent):
            parents.append((anchor, 1, 1))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, nodes, depth = parents.pop()
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == above for above, _, _ in parents):
                raise RecursionError
            nodes, depth = anchored.get(str(anchor), (1, 0))
        if anchor is not None:
            anchored[anchor] = nodes, depth
        above, held, deepest = parents.pop()
        parents.append((above, held + nodes, max(deepest, 1 + depth)))
    return parents[0][1]


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
