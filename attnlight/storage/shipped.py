"""What attnlight ships, found by name: configuration files, which `attnlight configs` lists, and models."""

import re
import sys
from functools import cache
from pathlib import Path

from attnlight.errors import InputError, did_you_mean
from attnlight.storage.files import suggest_file

CONFIGS = Path(__file__).parents[1] / "configs"
TRAINED = Path(__file__).parents[1] / "trained"
_NAME = re.compile(r"[\w-]+(/[\w-]+)?")  # neither a path with a suffix nor a class in a module
_CLASS = re.compile(r"[A-Z]\w*")


@cache  # commands look up a name or more in each step
def shipped_configs() -> dict[str, Path]:
    """The shipped files by name, such as `experiments/sst_bilstm`, in alphabetical order."""
    paths = sorted(CONFIGS.rglob("*.yaml"), key=lambda path: path.with_suffix(""))
    return {path.relative_to(CONFIGS).with_suffix("").as_posix(): path for path in paths}


def find_config(name: str, kind: str, folder: Path = Path(), place: str = "") -> str:
    """The path of a configuration file: `name` itself, or the shipped file that it names.

    A name is a path, to which `folder` is added, a class, inline YAML, or that of a shipped file:
    `sst_bilstm`, looked up in the folder `kind` of `configs/`, or `tests/cheap`. `place` is the
    file and key that give the name, for the message; empty on the command line.

    Raises:
        InputError: There is no such file and no shipped file of that name.
    """
    path = folder / name
    is_class = kind in ("data", "models") and _CLASS.fullmatch(name)
    if not _NAME.fullmatch(name) or is_class:
        return name
    shipped = shipped_configs()
    found = next((str(shipped[key]) for key in (f"{kind}/{name}", name) if key in shipped), None)
    if path.is_file() or (kind == "data" and path.is_dir()):
        return _before_shipped(path, name, found)
    if found is not None or (kind == "experiments" and path.is_dir()):
        return found or name  # what a folder is, its reader says
    stems = [path.stem for key, path in shipped.items() if key.startswith(f"{kind}/")]
    longer = [stem for stem in stems if stem.startswith(f"{name}_")]
    hint = f" (did you mean {' or '.join(longer)}?)" if longer else ""
    hint = hint or did_you_mean(name, (*stems, *shipped))
    raise InputError(
        f"{place and f'{place}: '}there is no file {name} and no shipped configuration of that "
        f"name{hint}; `attnlight configs` lists them."
    )


def find_trained(path: str | Path) -> Path:
    """The folder or checkpoint of a trained model: the path itself, or the shipped model it names.

    Raises:
        InputError: There is no such path and no shipped model of that name.
    """
    given = Path(path)
    names = sorted(folder.parent.name for folder in TRAINED.glob("*/best.ckpt"))
    shipped = str(TRAINED / str(path)) if str(path) in names else None
    if given.exists():
        return Path(_before_shipped(given, str(path), shipped))
    if shipped:
        return Path(shipped)
    hint = did_you_mean(str(path), names) or suggest_file(given)
    raise InputError(
        f"there is no run or checkpoint {path}{hint}, nor a model's folder; the models that come with "
        f"attnlight are {', '.join(names)}, and those of the Hugging Face hub have ids such as org/name."
    )


def _before_shipped(path: Path, name: str, shipped: str | None) -> str:
    """The name of a path that exists, which comes before what is shipped under the same name."""
    if shipped is None:
        return name
    print(f"{path} is read, not what attnlight has of that name: {shipped}.", file=sys.stderr)
    return f"./{name}"  # which is nothing else's name
