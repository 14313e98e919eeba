"""The texts of study reports, from `texts.yaml`."""

from functools import cache
from pathlib import Path
from typing import Any

from attnlight.storage.files import read_yaml


def text(*names: str, **fields: object) -> str:
    """A text with its fields filled in.

    `names` are its keys in the file, outermost first; `{Name}` is the field `name` with a capital.
    """
    entry: Any = texts()
    for name in names:
        entry = entry[name]
    words = {n.capitalize(): capital(f) for n, f in fields.items() if isinstance(f, str)}
    return str(entry).format(**fields, **words)


def capital(words: str) -> str:
    """The text with its first letter capitalised."""
    return f"{words[:1].upper()}{words[1:]}"


@cache
def texts() -> dict[str, Any]:
    """Everything in `texts.yaml`."""
    return read_yaml(Path(__file__).with_name("texts.yaml"))
