"""Classes by name: imported where a configuration names them, never because a checkpoint does."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from attnlight.errors import InputError, did_you_mean

T = TypeVar("T")
# Keys under which configurations (`class_path`) and hyperparameters name a class.
_NAMES = ("class_path", "problem", "network")


def import_class(path: str, base: type[T]) -> type[T]:
    """The class of an import path.

    Raises:
        InputError: It does not exist, or is not a subclass of `base`.
    """
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = f": {error}" if isinstance(error, ImportError) else ""
        raise InputError(f"there is no class {path!r}{why}.") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{path} is no {base.__name__}.")
    return kind


def class_of(path: Any, base: type, where: str) -> type:  # noqa: ANN401
    """The class that a configuration names, by its import path or by its name alone.

    Args:
        path: Import path, or the name of a known class.
        base: Known are the subclasses of this class that have been imported.
        where: The key, for the message.

    Raises:
        InputError: The class does not exist; the message names the nearest one.
    """
    known: dict[str, type] = {}
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:  # grows meanwhile
        known[kind.__name__] = kind
        kinds += kind.__subclasses__()
    if path in known:
        return known[path]
    try:
        return import_class(str(path), base)
    except InputError as error:
        hint = did_you_mean(str(path).rpartition(".")[2], known)
        raise InputError(f"{where}: {str(error).rstrip('.')}{hint}") from error


def foreign_names(options: object) -> set[str]:
    """Import paths that hyperparameters name: of a problem, a network, or those of a base's."""
    if not isinstance(options, Mapping):
        return set()
    held = {name for key, name in options.items() if key in _NAMES and isinstance(name, str)}
    own = {name for name in held if "." in name}
    return own.union(*map(foreign_names, options.values()))


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
