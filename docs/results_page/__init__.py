"""The tables and sentences of docs/results.md and the pages behind it, and of docs/known_answers.md."""

from pathlib import Path
from typing import Any

from attnlight.storage.files import read_yaml


def read_data(name: str) -> dict[str, Any]:
    """The content of a YAML file of this folder."""
    return read_yaml(Path(__file__).with_name(f"{name}.yaml"))


NAMES = read_data("names")  # by module
