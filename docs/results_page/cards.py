"""The verdict cards of several models side by side, from the `verdict.json` of their reports."""

from __future__ import annotations

import json
from pathlib import Path

from attnlight.errors import InputError
from results_page import NAMES
from results_page.tables import number, table

FOLDER = "cards"  # below docs/results, a file for each model
MODELS: dict[str, str] = NAMES["cards"]["models"]
LINES: dict[str, str] = NAMES["cards"]["lines"]


def card_table(folder: Path) -> str:
    """The answer, number and interval of each line of each model's card; a sentence without cards.

    Raises:
        InputError: A file is no card, or a card has other lines.
    """
    rows = {}
    for path in sorted(folder.glob("*.json")):
        try:
            lines = {line["name"]: line for line in json.loads(path.read_text("utf-8"))["lines"]}
            cells = {}
            for line, heading in ((lines.pop(name), heading) for name, heading in LINES.items()):
                figures = [number(line[x], 2) for x in ("value", "low", "high")]
                ends = ": {} [{}, {}]".format(*figures) if line["value"] is not None else ""
                cells[heading] = f"{line['answer']}{ends}"
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path} is not a verdict card, as `attnlight report` writes it."
            ) from error
        if lines:
            raise InputError(f"{path} has the lines {[*lines]}, too; expected {[*LINES]}.")
        rows[path.stem] = {"model": MODELS.get(path.stem, path.stem.replace("_", " ")), **cells}
    ordered = [rows.pop(name) for name in MODELS if name in rows] + [*rows.values()]
    return table(ordered, len(LINES) + 1) if ordered else "No card is archived.\n"
