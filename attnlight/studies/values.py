"""Values of a study file by their types, as jsonargparse reads them, a mistake in one sentence."""

from __future__ import annotations

import json
import math
import os
import re
from argparse import ArgumentError
from collections.abc import Collection, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser
from jsonargparse.typing import restricted_number_type

from attnlight import files
from attnlight.errors import InputError, did_you_mean
from attnlight.files import nearest_file

if TYPE_CHECKING:
    Seed = int
    Weight = float
else:
    Seed = restricted_number_type("Seed", int, [(">=", 0), ("<", 1 << 32)])
    Weight = restricted_number_type("Weight", float, [(">=", 0), ("<", math.inf)])
Seeds = tuple[Seed, ...]
Weights = tuple[Weight, ...]
Options = tuple[str, ...]  # a piece of configuration, as options of `fit`
_CONFIGURABLE = ("trainer", "model", "data")
_EXPECTED = {
    Seeds: "a list of whole numbers from 0 on",
    Weights: "a list of numbers of at least 0",
    Path: "the path of a file",
    tuple[Path, ...]: "a list of paths of files",
}


def read_value(kind: Any, given: object, place: str, folder: Path) -> Any:  # noqa: ANN401
    """A value of a study file: a dataclass, a mapping, options, or what jsonargparse reads.

    Raises:
        InputError: It has an unknown key, is not of the type, or names a file that is not there.
    """
    if is_dataclass(kind):
        make: Any = kind
        hints = get_type_hints(kind)
        known = {k: v for k, v in mapping(given, hints, place).items() if v is not None}
        parts = {k: read_value(hints[k], v, f"{place}: {k}", folder) for k, v in known.items()}
        return make(**parts)
    if get_origin(kind) is dict:
        keys, inner = get_args(kind)
        content = mapping(given, get_args(keys), place).items()
        return {key: read_value(inner, value, f"{place}: {key}", folder) for key, value in content}
    if kind == Options:
        return tuple(_options(mapping(given, _CONFIGURABLE, place), "--"))
    if kind is Any:
        return given
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=kind)
    try:
        value = parser.parse_object({"value": [] if given is None else given}).value
    except ArgumentError:
        raise InputError(f"{place} is {given!r}; expected {_expected(kind, given)}.") from None
    if isinstance(value, tuple) and len(set(value)) < len(value):
        twice = next(one for one in value if value.count(one) > 1)
        raise InputError(f"{place} names {twice} twice.")
    if kind is Path:
        return _existing(value, place, folder)
    if kind == tuple[Path, ...]:
        return tuple(_existing(path, place, folder) for path in value)
    return tuple(sorted(value)) if kind == Weights else value


def mapping(given: object, keys: Collection[str], place: str) -> dict[str, Any]:
    """A mapping with some of these keys, of any where there are none; empty of None."""
    if given is not None and not isinstance(given, dict):
        raise InputError(f"{place} is {given!r}; expected a mapping.")
    for key in given or {}:
        if keys and key not in keys:
            raise InputError(
                f"{place} has the unknown key {key!r}{did_you_mean(str(key), keys)}; expected one "
                f"of: {', '.join(keys)}."
            )
    return given or {}


def _expected(kind: Any, given: object) -> str:  # noqa: ANN401
    """What a value should be, with the nearest word where it is a list of words."""
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    words = get_args(get_args(kind)[0])
    wrong = [str(word) for word in given if word not in words] if isinstance(given, list) else []
    return f"a list of {', '.join(words)}{did_you_mean(wrong[0], words) if wrong else ''}"


def _existing(given: Path, place: str, folder: Path) -> Path:
    path = Path(os.path.normpath(folder / given))
    if not path.is_file():
        raise InputError(f"{place} names {path}, which is no file{nearest_file(path)}.")
    return path


def _options(content: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _options(value, f"{prefix}{key}.")
        elif isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./-]*", value):
            yield f"{prefix}{key}={value}"
        else:
            yield f"{prefix}{key}={json.dumps(value)}"


def read_yaml(path: Path) -> dict[str, Any]:
    """A configuration file as plain values.

    Raises:
        InputError: It is missing, no YAML, or no mapping.
    """
    content = files.read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no mapping of keys to values.")
    return content
