"""The verdict cards of several models side by side, from the `verdict.json` of their reports."""

from __future__ import annotations

import json
from pathlib import Path

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
