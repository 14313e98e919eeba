"""`attnlight configs`: lists the shipped configuration files, or prints one."""

from collections.abc import Sequence

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError, did_you_mean
from attnlight.storage.shipped import shipped_configs


def main(argv: Sequence[str]) -> int:
    """List the shipped configuration files, or print those of one name."""
    what = "List the shipped configuration files, or print one."
    parser = VerbParser("configs", description=what)
    parser.add_argument("name", metavar="NAME", nargs="?", help="such as experiments/sst_bilstm")
    name, shipped = parser.parse_args(argv).name, shipped_configs()
    if name is None:
        print(*shipped, sep="\n")
        return 0
    named = [path for key, path in shipped.items() if name in (key, path.stem)]
    if not named:
        hint = did_you_mean(name, (*(path.stem for path in shipped.values()), *shipped))
        raise InputError(f"there is no shipped configuration {name!r}{hint}.")
    for path in named:
        print(f"# {path}", path.read_text(encoding="utf-8"), sep="\n", end="")
    return 0
