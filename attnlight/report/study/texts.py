"""What reports of studies say, from `texts.yaml`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


def text(kind: str, *names: str, **fields: object) -> str:
    """A text with its fields filled in.

    Args:
        kind: What it is, a key of the file.
        names: Its name; of an outcome question and outcome.
        fields: What stands in its braces.
    """
    found: Any = texts()[kind]
    for name in names:
        found = found[name]
    return str(found).format(**fields)


@cache
def texts() -> dict[str, Any]:
    """Everything in `texts.yaml`."""
    path = files(__package__) / "texts.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
