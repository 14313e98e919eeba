"""Import classes by name, for configurations but never for a checkpoint alone."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from attnlight.errors import InputError, did_you_mean

T = TypeVar("T")
# Keys under which configurations (`class_path`) and hyperparameters name a class.
_CLASS_KEYS = ("class_path", "problem", "network")
_OWN = "attnlight."


def import_class(path: str, base: type[T]) -> type[T]:
    """The class of an import path.

    Raises:
        InputError: The class does not exist, or is not a subclass of `base`.
    """
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = f": {error}" if isinstance(error, ImportError) else ""
        raise InputError(f"there is no class {path!r}{why}.") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{path} is not a subclass of {base.__name__}.")
    return kind


def class_of(path: Any, base: type, where: str) -> type:  # noqa: ANN401
    """The class that a configuration names, by its import path or by its name alone.

    Args:
        path: Import path, or the name of an imported subclass of `base`.
        base: The base class.
        where: The key, for the message.

    Raises:
        InputError: The class does not exist; the message names the closest one.
    """
    by_name: dict[str, type] = {}
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:  # extended while iterating
        by_name[kind.__name__] = kind
        kinds += kind.__subclasses__()
    if path in by_name:
        return by_name[path]
    try:
        return import_class(str(path), base)
    except InputError as error:
        hint = did_you_mean(str(path).rpartition(".")[2], by_name)
        raise InputError(f"{where}: {str(error).rstrip('.')}{hint}") from error


def foreign_names(options: object) -> set[str]:
    """Import paths outside attnlight in hyperparameters: of a problem, a network, or those of a base."""
    if not isinstance(options, Mapping):
        return set()
    names = {name for key, name in options.items() if key in _CLASS_KEYS and isinstance(name, str)}
    paths = {name for name in names if "." in name and not name.startswith(_OWN)}
    return paths.union(*map(foreign_names, options.values()))


def require_trusted_classes(
    path: object, options: Mapping[str, Any], trusted: object = None
) -> None:
    """Check that a checkpoint names no class from a module that the user has not named.

    Args:
        path: The checkpoint, for the message.
        options: Its hyperparameters.
        trusted: The user's configuration, whose modules may be imported.

    Raises:
        InputError: The checkpoint names such a class.
    """
    modules = {name.rpartition(".")[0] for name in foreign_names(trusted)}
    unknown = sorted(n for n in foreign_names(options) if n.rpartition(".")[0] not in modules)
    if unknown:
        raise InputError(
            f"{path} names the class {unknown[0]}, which is not part of attnlight and is not "
            "imported for a checkpoint alone: test the run with its fit.yaml, or give the run's "
            "folder as the base."
        )
