"""Parse the values of a study file by type with jsonargparse; mistakes are one sentence."""

import json
import math
import os
from argparse import ArgumentError
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser
from jsonargparse.typing import restricted_number_type

from attnlight.errors import InputError, did_you_mean
from attnlight.storage.files import suggest_file
from attnlight.storage.shipped import find_config

if TYPE_CHECKING:
    Seed = int
    Weight = float
else:
    Seed = restricted_number_type("Seed", int, [(">=", 0), ("<", 1 << 32)])
    Weight = restricted_number_type("Weight", float, [(">=", 0), ("<", math.inf)])
Seeds = tuple[Seed, ...]
Weights = tuple[Weight, ...]
Options = tuple[str, ...]  # part of a configuration, as options of `fit`
_SECTIONS = dict[Literal["trainer", "model", "data"], Any]
_EXPECTED = {
    Seeds: "a list of whole numbers from 0 on",
    Weights: "a list of numbers of at least 0",
    Path: "the path of a file",
    tuple[Path, ...]: "a list of paths of files",
}


def read_value(kind: Any, given: object, place: str, folder: Path) -> Any:  # noqa: ANN401
    """A value of a study file: a dataclass, a mapping, options, or a type of jsonargparse's.

    `place` locates it for messages; paths are relative to `folder`.

    Raises:
        InputError: It has an unknown key, is not of the type, or names a missing file.
    """
    if kind == Options:
        return tuple(_options(read_value(_SECTIONS, given, place, folder), "--"))
    is_group = is_dataclass(kind)
    if not is_group and get_origin(kind) is not dict:
        return given if kind is Any else _read_list(kind, given, place, folder)
    content = {} if given is None else given
    if not isinstance(content, dict):
        raise InputError(f"{place} is {given!r}; expected a mapping.")
    if is_group:
        hints = get_type_hints(kind).items()
        kinds = {key: Path if hint == Path | None else hint for key, hint in hints}
    else:
        keys, inner = get_args(kind)
        kinds = dict.fromkeys(get_args(keys) or content, inner)
    for key in content:
        if key not in kinds:
            hint = f"{did_you_mean(str(key), kinds)}; expected one of: {', '.join(kinds)}"
            raise InputError(f"{place} has the unknown key {key!r}{hint}.")
    if is_group:
        required = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
        content = dict.fromkeys(required) | {k: v for k, v in content.items() if v is not None}
    values = {k: read_value(kinds[k], v, f"{place}: {k}", folder) for k, v in content.items()}
    return kind(**values) if is_group else values


def _read_list(kind: Any, given: object, place: str, folder: Path) -> Any:  # noqa: ANN401
    """A path or another single value, or a tuple of distinct numbers, words or paths."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=kind)
    try:
        value = parser.parse_object({"value": [] if given is None else given}).value
    except ArgumentError:
        expected = _EXPECTED.get(kind)
        if expected is None:
            words = get_args(get_args(kind)[0])
            unknown = [w for w in given if w not in words] if isinstance(given, list) else [""]
            expected = f"a list of {', '.join(words)}{did_you_mean(str(unknown[0]), words)}"
        raise InputError(f"{place} is {given!r}; expected {expected}.") from None
    values = value if isinstance(value, tuple) else (value,)
    for item in values:
        if values.count(item) > 1:
            raise InputError(f"{place} names {item} twice.")
    if kind == Weights:
        return tuple(sorted(values))
    if kind not in (Path, tuple[Path, ...]):
        return value
    shipped = "experiments" if kind is Path else "tests"
    found = [folder / find_config(str(path), shipped, folder, place) for path in values]
    paths = tuple(Path(os.path.normpath(path)) for path in found)
    for path in paths:
        if not path.is_file():
            raise InputError(f"{place} names {path}, which is not a file{suggest_file(path)}.")
    return paths[0] if kind is Path else paths


def _options(content: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _options(value, f"{prefix}{key}.")
        else:  # quotes around a string would become a part of it
            yield f"{prefix}{key}={value if isinstance(value, str) else json.dumps(value)}"
