"""Import classes by name: of the user's own configurations, of stored ones only if trusted.

A stored configuration may be a stranger's. It is never imported for a checkpoint alone.
"""

import os
import re
import sys
from collections.abc import Container, Iterator, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from attnlight.errors import InputError, did_you_mean
from attnlight.storage.files import parse_yaml

T = TypeVar("T")
# Keys under which configurations (`class_path`) and hyperparameters name a class.
_CLASS_KEYS = ("class_path", "problem", "network")
_OWN = "attnlight."
_TRUSTED = ("attnlight", "lightning", "torch")
_SECTIONS = ("model", "data", "trainer")
# What jsonargparse or `compose` would read from a file.
_IN_FULL = (*_SECTIONS, "model.init_args.net")
TRUST = "ATTNLIGHT_TRUST"  # names of packages, separated by commas
# What a run's folder stores: the configuration of a verb, perhaps with the name of a corpus.
STORED = re.compile(r"(fit|validate|test|predict)(-.*)?\.yaml", re.DOTALL)


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
    """The class that a configuration names, by import path or as an imported subclass of `base`.

    Raises:
        InputError: The class does not exist; the message names the key, `where`, and the closest one.
    """
    by_name: dict[str, type] = {}
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:  # extended while iterating
        by_name[kind.__name__] = kind
        kinds += kind.__subclasses__()
    if str(path) in by_name:
        return by_name[str(path)]
    try:
        return import_class(str(path), base)
    except InputError as error:
        hint = did_you_mean(str(path).rpartition(".")[2], by_name)
        raise InputError(f"{where}: {str(error).rstrip('.')}{hint}") from error


def foreign_names(options: object) -> set[str]:
    """Import paths outside attnlight in hyperparameters: of a problem, a network, or those of a base.

    What a variant inherits from its base is text in a configuration.
    """
    if not isinstance(options, Mapping):
        return set()
    if isinstance(inherited := options.get("inherited"), str):
        options = {**options, "inherited": parse_yaml(inherited, "inherited")}
    names = {name for key, name in options.items() if key in _CLASS_KEYS and isinstance(name, str)}
    paths = {name for name in names if "." in name and not name.startswith(_OWN)}
    return paths.union(*map(foreign_names, options.values()))


def require_trusted(path: Path, content: Mapping[str, Any], imported: Container[str] = ()) -> None:
    """Check that a stored configuration names no class or function that its reader does not trust.

    Places outside its folder, where a logger may write, are printed on stderr. Classes of modules
    that the caller has `imported` may be named.

    Raises:
        InputError: It names one outside attnlight, lightning and torch, whose package is neither on
            `$PYTHONPATH` nor in `$ATTNLIGHT_TRUST`.
    """
    outside = []
    for key, text in _strings(path, {name: content.get(name) for name in _SECTIONS}):
        section, last = key.partition(".")[0], key.rpartition(".")[2]
        named = section == "trainer" or key in _IN_FULL or last in _CLASS_KEYS
        if named and _is_import_path(text):
            if not is_trusted(text) and text.rpartition(".")[0] not in imported:
                raise InputError(
                    f"{path} names {text} ({key}), which is not part of attnlight, lightning or torch "
                    "and is not imported because a file names it: if you trust it, put its folder on "
                    f"PYTHONPATH, or set {TRUST}={text.partition('.')[0]}."
                )
        elif key in _IN_FULL:
            raise InputError(f"{path} has the text {text!r} as {key}; expected a mapping.")
        place = Path(os.path.expanduser(text)) if section == "trainer" else Path()
        elsewhere = not Path(os.path.abspath(place)).is_relative_to(path.parent.absolute())
        if elsewhere and (place.is_absolute() or ".." in place.parts):
            outside.append(f"{text!r} ({key})")
    if outside:
        print(f"{path} names places outside its folder: {', '.join(outside)}", file=sys.stderr)


def is_trusted(name: str) -> bool:
    """Whether an import path may be imported because a stored file names it.

    It is part of attnlight, lightning or torch, of a package in `$ATTNLIGHT_TRUST`, or of one that is
    found in a folder of `$PYTHONPATH`; an installed package is not trusted for being there.
    """
    package = name.partition(".")[0]
    if package in (*_TRUSTED, *os.environ.get(TRUST, "").replace(" ", "").split(",")):
        return True
    folders = os.environ.get("PYTHONPATH")
    own = PathFinder.find_spec(package, folders.split(os.pathsep)) if folders else None
    return own is not None and _place(own) == _place(_found(package))


def trusting(*named: object) -> str:
    """`$ATTNLIGHT_TRUST` for processes that read what runs of the user's configurations store."""
    names = re.findall(r"[^\W\d]\w*(?:\.\w+)+", " ".join(map(str, named)))
    packages = {n.partition(".")[0] for n in names if _is_import_path(n) and not is_trusted(n)}
    return ",".join(sorted({*packages, *filter(None, os.environ.get(TRUST, "").split(","))}))


def _strings(path: Path, value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """All text in a configuration with its dotted key, also in YAML that text holds."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strings(path, part, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for part in value:
            yield from _strings(path, part, key)
    elif isinstance(value, str):
        yield key, value
        try:
            content = parse_yaml(value, f"{path}: {key}")
        except InputError as error:
            if error.__cause__ is None:  # it is YAML, but too much of it
                raise
            return
        if not isinstance(content, str):  # jsonargparse reads mappings and lists in text
            yield from _strings(path, content, key)


def _is_import_path(text: str) -> bool:
    """Whether text is the dotted name of something in a package that can be imported."""
    parts = text.split(".")
    return len(parts) > 1 and all(map(str.isidentifier, parts)) and _found(parts[0]) is not None


def _found(package: str) -> ModuleSpec | None:
    """Where a package would be imported from, without importing it."""
    try:
        return find_spec(package)
    except ValueError:  # of a module that was not imported from anywhere, such as `__main__`
        return ModuleSpec(package, None)


def _place(spec: ModuleSpec | None) -> list[str]:
    """The files or folders of a package."""
    if spec is None:
        return []
    places = [spec.origin or ""] if spec.has_location else spec.submodule_search_locations or ()
    return [os.path.realpath(place) for place in places]


def require_trusted_classes(
    path: object, options: Mapping[str, Any], trusted: object = None
) -> None:
    """Check the hyperparameters of a checkpoint.

    Raises:
        InputError: They name a class from a module that the user's configuration, `trusted`, does not.
    """
    modules = {name.rpartition(".")[0] for name in foreign_names(trusted)}
    unknown = sorted(n for n in foreign_names(options) if n.rpartition(".")[0] not in modules)
    if unknown:
        raise InputError(
            f"{path} names the class {unknown[0]}, which is not part of attnlight and is not "
            "imported for a checkpoint alone: test the run with its fit.yaml, or give the run's "
            "folder as the base."
        )
