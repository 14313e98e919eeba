"""The configuration files that come with attnlight, by name; `attnlight configs` lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from attnlight.arguments import VerbParser
from attnlight.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent / "configs"
KINDS = ("experiments", "tests", "data", "models", "studies")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*(/[a-z0-9_]+)?")  # a class has capitals, a file a suffix


def find_config(name: str, kind: str, folder: Path = Path()) -> str:
    """The path of a configuration file: `name` itself, or the shipped file that it names.

    What is a path, a class or a value stays as it is.

    Args:
        name: A path, or a name such as `sst_bilstm` or `tests/cheap`.
        kind: The folder of names without one, such as `experiments`.
        folder: What a path is relative to.

    Raises:
        InputError: It names neither.
    """
    if not _NAME.fullmatch(name) or (folder / name).exists():
        return name
    for path in (FOLDER / kind / f"{name}.yaml", FOLDER / f"{name}.yaml"):
        if path.is_file():
            return str(path)
    place, _, stem = f"{kind}/{name}".rpartition("/")
    hint = did_you_mean(stem, names(place.rpartition("/")[2]))
    raise InputError(
        f"there is no file {name}, and none of that name comes with attnlight{hint}; `attnlight "
        f"configs` lists those that do."
    )


def names(kind: str) -> list[str]:
    """The names of one kind of file that comes with attnlight, in order."""
    return sorted(path.stem for path in (FOLDER / kind).glob("*.yaml"))


def main(argv: Sequence[str]) -> int:
    """List the files that come with attnlight, or print one.

    Raises:
        InputError: There is none of that name.
    """
    parser = VerbParser(
        "configs", description="List the shipped configuration files, or print one."
    )
    parser.add_argument(
        "name", nargs="?", help="as in the list: experiments/sst_bilstm, or sst_bilstm"
    )
    name = parser.parse_args(argv).name
    if name is None:
        for kind in KINDS:
            print(f"{kind}:", *(f"  {name}" for name in names(kind)), sep="\n")
        return 0
    every = {
        f"{kind}/{name}": FOLDER / kind / f"{name}.yaml" for kind in KINDS for name in names(kind)
    }
    every = {"trainer": FOLDER / "trainer.yaml"} | every
    stems = {key.rpartition("/")[2]: path for key, path in reversed(every.items())}
    path = (stems | every).get(name)
    if path is None:
        hint = did_you_mean(name, stems | every)
        raise InputError(f"no configuration file {name!r} comes with attnlight{hint}.")
    print(f"# {path}", path.read_text(encoding="utf-8"), sep="\n", end="")
    return 0
