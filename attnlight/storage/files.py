"""Atomic writes, and reading of YAML and JSON with errors that name the file."""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from attnlight.errors import InputError, did_you_mean, one_line

# Glob, by file name, of the temporary files that a killed process leaves.
LEFTOVER_GLOB = ".{}.????????"
YAML_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_DEPTH, _MAX_VALUES = 100, 1_000_000  # of a configuration
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader  # a tenth of the time
_MAX_JSON = 1 << 28  # bytes; the tokenizers of large vocabularies have 30 MB
_POINTER = b"version https://git-lfs"  # how a pointer begins that stands for a large file


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into an `InputError` that names the file being written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path` that replaces it when the block succeeds.

    The folder is created if it is missing. The content is flushed to the disk before the file is
    renamed, so a crash at any moment leaves either the old file or the new one. If the block fails,
    the temporary file is removed.

    Raises:
        InputError: The disk is full, a size limit is exceeded, or the folder cannot be written.
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


def require_no_links_out(folder: Path) -> None:
    """Check that nothing written into a folder's own folders would land outside it.

    Links to files are no danger: `replacing` replaces the link. The folder itself may be a link.
    """
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names if Path(parent, name).is_symlink()):
            target = path.resolve()
            if not target.is_relative_to(folder.resolve()):
                raise InputError(
                    f"{path} is a link to {target}, outside {folder}: replace it by a folder."
                )


def require_ordinary(path: Path) -> None:
    """Raise `OSError` if a path is neither missing nor a file: reading a pipe may never end."""
    if path.exists() and not path.is_file():
        raise OSError("it is not an ordinary file")


def suggest_file(path: Path) -> str:
    """A hint in brackets with the file whose name is closest to a missing one, or an empty string.

    Example:
        >>> suggest_file(Path(__file__).with_name("fils.py"))
        " (did you mean 'files.py'?)"
    """
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    return did_you_mean(path.name, names)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically; what UTF-8 cannot hold, such as half of a surrogate, as `?`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def read_yaml(path: Path, load: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The content of a YAML file that holds a mapping of plain values; `load` as of `parse_yaml`.

    Raises:
        InputError: The file is missing, no ordinary file, not UTF-8, or not such YAML.
    """
    try:
        require_ordinary(path)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}{suggest_file(path)}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or one_line(error)
        raise InputError(f"{path} is not readable YAML: {reason}.") from error
    content = parse_yaml(text, path, load)
    if not isinstance(content, dict):
        held = "nothing" if content is None else f"a {type(content).__name__}"
        raise InputError(f"{path} holds {held}; expected a mapping of names to values.")
    return content


def parse_yaml(text: str, place: object, load: Callable[[str], Any] | None = None) -> Any:  # noqa: ANN401
    """The plain values that YAML holds, by the parser `load` (None: PyYAML's safe one).

    Raises:
        InputError: It is not YAML, nested too deeply, or expands to too many values by its aliases.
    """
    try:
        nodes = _count_nodes(text)
        content = (
            (load or partial(yaml.load, Loader=_LOADER))(text) if nodes <= _MAX_VALUES else None
        )
    except RecursionError:
        raise InputError(f"{place} is not readable YAML: it is nested too deeply.") from None
    except Exception as error:  # nearly any, depending on the tag: a date such as 2024-99-99
        raise InputError(f"{place} is not readable YAML: {one_line(error)}.") from error
    if nodes > _MAX_VALUES:
        raise InputError(f"{place} has more than {_MAX_VALUES:,} values, with aliases expanded.")
    return content


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds a mapping.

    Raises:
        InputError: The file is missing, a git-lfs pointer, larger than 256 MB, or not such JSON.
    """
    try:
        require_ordinary(path)
        with path.open("rb") as file:
            content = file.read(_MAX_JSON + 1)
        if len(content) > _MAX_JSON:
            raise OSError(f"it is larger than {_MAX_JSON >> 20} MB")
        refuse_pointer(path, content)
        found = json.loads(content.decode("utf-8"))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {path}{suggest_file(path)}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable JSON: {one_line(error)}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__}; expected a mapping.")
    return found


def refuse_pointer(path: Path, content: bytes) -> None:
    """Raise `InputError` if the content of a file is a git-lfs pointer to it."""
    if content.startswith(_POINTER):
        raise InputError(
            f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull` in its folder."
        )


def _count_nodes(text: str) -> int:
    """Number of keys and values in YAML, with aliases expanded, counted before it is loaded.

    Deep nesting would overflow the stack of PyYAML's C loader, and nested aliases the memory.

    Raises:
        RecursionError: It is nested too deeply, or contains itself.
    """
    anchored: dict[str, tuple[int, int]] = {}  # number of nodes, and depth of nesting
    parents: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # the same for open collections
    for event in yaml.parse(text, Loader=_LOADER):
        if len(parents) + parents[-1][2] > _MAX_DEPTH:
            raise RecursionError
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        nodes, depth = 1, 0
        if isinstance(event, yaml.CollectionStartEvent):
            parents.append((anchor, 1, 1))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, nodes, depth = parents.pop()
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == parent for parent, _, _ in parents):
                raise RecursionError
            nodes, depth = anchored.get(str(anchor), (1, 0))
        if anchor is not None:
            anchored[anchor] = nodes, depth
        parent, siblings, deepest = parents.pop()
        parents.append((parent, siblings + nodes, max(deepest, 1 + depth)))
    return parents[0][1]


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
