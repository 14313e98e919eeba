"""One mapping of a study file, whose values are checked as they are taken."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlight import files
from attnlight.errors import InputError, did_you_mean
from attnlight.files import nearest_file

_CONFIGURABLE = ("trainer", "model", "data")


def read_yaml(path: Path) -> dict[str, Any]:
    """A configuration file as plain values.

    Raises:
        InputError: It is missing, no YAML, or no mapping.
    """
    content = files.read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no mapping of keys to values.")
    return content


@dataclass(frozen=True)
class Experiment:
    """An experiment file.

    Attributes:
        content: What it says, with the files that it names as `model` and `data` in their places.
        corpus: Name of the corpus: the stem of its file, or else its class.
        model: Class of the model without its package, "" where there is none.
    """

    content: Mapping[str, Any]
    corpus: str
    model: str


def read_experiment(path: Path) -> Experiment:
    """Read an experiment with its model and its corpus.

    Raises:
        InputError: One of these files is missing or no YAML, or no corpus is named.
    """
    said = read_yaml(path)
    files = {
        key: path.parent / said[key]
        for key in ("model", "data")
        if isinstance(said.get(key), str) and (path.parent / said[key]).is_file()
    }
    content = said | {key: read_yaml(file) for key, file in files.items()}
    corpus = files["data"].stem if "data" in files else _class(content.get("data"))
    if not corpus:
        raise InputError(f"{path} has no `data`: a study needs its corpus.")
    return Experiment(content, corpus, _class(content.get("model")))


def _class(part: object) -> str:
    named = part.get("class_path") if isinstance(part, dict) else part
    return named.rpartition(".")[2] if isinstance(named, str) else ""


class Section:
    """A mapping of a study file.

    Args:
        place: Where it stands, for complaints.
        content: What stands there; None is an empty mapping.
        keys: The keys that it may have.
        folder: What paths in it are relative to.

    Raises:
        InputError: It is no mapping, or has another key.
    """

    def __init__(self, place: str, content: object, keys: Sequence[str], folder: Path) -> None:
        if content is not None and not isinstance(content, dict):
            raise InputError(f"{place} is {content!r}; expected a mapping.")
        self.place, self.keys, self.folder = place, keys, folder
        self.content: Mapping[str, Any] = content or {}
        for key in self.content:
            if key not in keys:
                raise InputError(
                    f"{place} has the key {key!r}, which is none; they are {', '.join(keys)}"
                    f"{did_you_mean(key, keys)}."
                )

    def part(self, key: str, keys: Sequence[str]) -> Section:
        """The mapping under a key."""
        return Section(f"{self.place}: {key}", self.content.get(key), keys, self.folder)

    def listed(self, key: str, default: Sequence[Any] = ()) -> list[Any]:
        """A list whose values differ.

        Raises:
            InputError: It is no list, or holds a value twice.
        """
        values = self.content.get(key, list(default))
        if not isinstance(values, list):
            raise InputError(f"{self.place}: {key} is {values!r}; expected a list.")
        repeated = [value for i, value in enumerate(values) if value in values[:i]]
        if repeated:
            raise InputError(f"{self.place}: {key} names {repeated[0]!r} twice.")
        return values

    def seeds(
        self, key: str = "seeds", default: Sequence[int] = (), what: str = "seed"
    ) -> tuple[int, ...]:
        """A list of seeds or the like, whole numbers of at least 0.

        Raises:
            InputError: A value is none.
        """
        values = self.listed(key, default)
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
                raise InputError(
                    f"{self.place}: {key} has {value!r}; a {what} is a whole number from 0 on."
                )
        return tuple(values)

    def lambdas(self, key: str) -> tuple[float, ...]:
        """A list of weights, finite numbers of at least 0, in ascending order.

        Raises:
            InputError: A value is none, or there is none at all.
        """
        values = tuple(sorted(self._lambda(key, value) for value in self.listed(key)))
        if not values:
            raise InputError(f"{self.place}: {key} names no lambda.")
        return values

    def _lambda(self, key: str, value: object) -> float:
        try:
            # PyYAML takes 5e-4, without a point, for text.
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except ValueError:
            number = math.nan
        if isinstance(value, bool) or not 0 <= number < math.inf:
            raise InputError(
                f"{self.place}: {key} has the lambda {value!r}; it must be a number of at least 0."
            )
        return number

    def words(self, key: str, known: Sequence[str], default: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of some of the known words.

        Raises:
            InputError: Another one is among them.
        """
        values = self.listed(key, default)
        for value in values:
            if value not in known:
                raise InputError(
                    f"{self.place}: {key} has {value!r}, which is none; they are "
                    f"{', '.join(known)}."
                )
        return tuple(values)

    def file(self, key: str) -> Path:
        """A file that is there.

        Raises:
            InputError: The key or the file is missing.
        """
        if key not in self.content:
            raise InputError(f"{self.place} has no {key}, which is the path of a file.")
        return self._existing(key, self.content[key])

    def files(self, key: str) -> tuple[Path, ...]:
        """A list of files that are there.

        Raises:
            InputError: One is missing.
        """
        return tuple(self._existing(key, value) for value in self.listed(key))

    def _existing(self, key: str, value: object) -> Path:
        path = Path(os.path.normpath(self.folder / str(value)))
        if not isinstance(value, str) or not path.is_file():
            raise InputError(
                f"{self.place}: {key} names {path}, which is no file{nearest_file(path)}."
            )
        return path

    def options(self) -> tuple[str, ...]:
        """The mapping under `options`, a piece of configuration, as options of `fit`.

        Raises:
            InputError: It sets another thing than trainer, model or data.
        """
        held = self.part("options", _CONFIGURABLE).content
        return tuple(_flags(held, "--"))


def _flags(content: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flags(value, f"{prefix}{key}.")
        elif isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./-]*", value):
            yield f"{prefix}{key}={value}"
        else:
            yield f"{prefix}{key}={json.dumps(value)}"
