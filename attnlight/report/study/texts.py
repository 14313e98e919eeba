"""What reports of studies say, from `texts.yaml`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


def text(*names: str, **fields: object) -> str:
    """A text with its fields filled in.

    Args:
        names: Its place in the file.
        fields: What stands in its braces; `{Name}` is the field `name` with a capital.
    """
    found: Any = texts()
    for name in names:
        found = found[name]
    words = {n.capitalize(): capital(f) for n, f in fields.items() if isinstance(f, str)}
    return str(found).format(**fields, **words)


def capital(words: str) -> str:
    """Words with a capital at their beginning."""
    return f"{words[:1].upper()}{words[1:]}"


@cache
def texts() -> dict[str, Any]:
    """Everything in `texts.yaml`."""
    path = files(__package__) / "texts.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
