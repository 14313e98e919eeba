"""Classes of the user's own: imported where a configuration names them, never for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

from attnlight.errors import InputError

T = TypeVar("T")
# Keys under which configurations (`class_path`) and hyperparameters name a class.
_NAMES = ("class_path", "problem", "network")


def import_class(path: str, base: type[T]) -> type[T]:
    """The class of an import path.

    Raises:
        InputError: There is none, or it is no subclass of `base`.
    """
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"there is no class {path!r}: {error}.") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{path} is no {base.__name__}.")
    return kind


def foreign_names(options: object) -> set[str]:
    """Import paths that hyperparameters name: of a problem, a network, or those of a base's."""
    return set(_named(options))


def _named(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, held in value.items():
            if key in _NAMES and isinstance(held, str) and "." in held:
                yield held
            else:
                yield from _named(held)


def require_known(path: object, options: Mapping[str, Any], known: object = None) -> None:
    """Refuse hyperparameters of a checkpoint that name a class of a module which nothing else names.

    Args:
        path: The checkpoint, for the message.
        options: Its hyperparameters.
        known: What the user gave: a configuration, in which such a class may stand.

    Raises:
        InputError: They do.
    """
    modules = {name.rpartition(".")[0] for name in foreign_names(known)}
    unknown = sorted(n for n in foreign_names(options) if n.rpartition(".")[0] not in modules)
    if unknown:
        raise InputError(
            f"{path} names the class {unknown[0]}, which is not attnlight's, and a checkpoint "
            "imports nothing: test the run with its fit.yaml, and as a base name its folder."
        )
