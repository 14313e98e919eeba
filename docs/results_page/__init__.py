"""The tables and sentences of docs/results.md and the pages behind it, and of docs/known_answers.md."""

from pathlib import Path
from typing import Any

import yaml


def read_data(name: str) -> dict[str, Any]:
    """The content of a YAML file of this folder."""
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


NAMES = read_data("names")  # by module
