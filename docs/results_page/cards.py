"""The verdict cards of several models side by side, from the `verdict.json` of their reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlight.errors import InputError
from results_page.tables import number, table

FOLDER = "cards"  # below docs/results, a file for each model
# Models in the order of the table; others follow by the name of their file.
MODELS = {
    "sst_bilstm": "SST, BiLSTM",
    "sst_cnn": "SST, CNN",
    "sst_average": "SST, average",
    "imdb_bilstm": "IMDb, BiLSTM",
    "planted_bilstm": "planted, BiLSTM",
    "planted_none": "planted, no encoder",
    "babi_1_bilstm": "bAbI 1, BiLSTM",
}
LINES = {
    "ranks": "does it rank by importance?",
    "smallest_set": "does it find the smallest deciding set?",
    "uniqueness": "is it the only attention that would do?",
    "notices": "would the tests notice a misleading model?",
    "words": "do states stand for their words?",
}


def card_table(folder: Path) -> str:
    """The answer, number and interval of each line of each model's card; a sentence without cards.

    Raises:
        InputError: A file is no card, or a card has other lines.
    """
    places = [*MODELS]
    rows = []
    for path in sorted(
        folder.glob("*.json"),
        key=lambda path: (places.index(path.stem) if path.stem in MODELS else len(places), path),
    ):
        try:
            lines = {line["name"]: line for line in json.loads(path.read_text("utf-8"))["lines"]}
            if lines.keys() != LINES.keys():
                raise InputError(f"{path} has the lines {[*lines]}; expected {[*LINES]}.")
            cells = {heading: line_cell(lines[name]) for name, heading in LINES.items()}
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path} is not a verdict card, as `attnlight report` writes it."
            ) from error
        model = MODELS.get(path.stem, path.stem.replace("_", " "))
        rows.append({"model": model, **cells})
    return table(rows, len(LINES) + 1) if rows else "No card is archived.\n"


def line_cell(line: Mapping[str, Any]) -> str:
    """The answer of a line, its number and the interval."""
    if line["value"] is None:
        return str(line["answer"])
    ends = (number(line[end], 2) for end in ("low", "high"))
    return f"{line['answer']}: {number(line['value'], 2)} [{', '.join(ends)}]"
