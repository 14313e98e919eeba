"""What each test shows of its record: one module per test, found by the test's name in snake case.

A module holds `QUESTION` (what the test asks), `SOURCE` (the paper), `MEASURES` (each column in
words, with its unit), `CAPTION` (what the figure shows) and `draw(rows, classes)`. It may also hold
`tables(rows, classes)`, tables of the test's own, and `COLUMNS`, the columns of the record that
the two of them read beside `index`, `position`, `prediction` and `max_attention`; without it they
get all columns but lists of varying length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.records import read_metadata, read_pieces, record_columns
from attnlight.report.markup import without_controls
from attnlight.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 1_000_000
_ALWAYS = ("index", "position", "prediction", "max_attention")


@dataclass(frozen=True)
class Description:
    """What a reader should know of a test.

    Attributes:
        title: Its name in words.
        question: What it asks.
        source: The paper that it follows.
        measures: Each column in words, with its unit.
        caption: What its figure shows.
    """

    title: str
    question: str = ""
    source: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""


def draw(
    test: str, rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None
) -> Figure | None:
    """Draw a test's figure.

    Args:
        test: The test's name in snake case.
        rows: Columns of its record, (R,) or (R, K), NaN where undefined.
        classes: Names of the classes; None numbers them.

    Returns:
        The figure, or None for a test that has none or a record without rows.
    """
    module = _module(test)
    if module is None or not len(rows["index"]):
        return None
    # Figures know no direction of text: its controls would be drawn as boxes, or turn labels around.
    names = None if classes is None else [without_controls(name) for name in classes]
    figure: Figure | None = module.draw(rows, names)
    return figure


def tables(
    test: str, rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None
) -> list[Table]:
    """Make a test's own tables.

    Args:
        test: The test's name in snake case.
        rows: Columns of its record, (R,) or (R, K), NaN where undefined.
        classes: Names of the classes; None numbers them.

    Returns:
        The tables; none for a test that has none or a record without rows.
    """
    make = getattr(_module(test), "tables", None)
    if make is None or not len(rows["index"]):
        return []
    return list(make(rows, classes))


def columns(test: str) -> Sequence[str] | None:
    """The columns that a test's figure and tables read; None where its module does not say."""
    return getattr(_module(test), "COLUMNS", None)


def describe(test: str) -> Description:
    """What is known of a test; its name alone where this package does not know it."""
    title = test.replace("_", " ").capitalize()
    module = _module(test)
    if module is None:
        return Description(title)
    return Description(title, module.QUESTION, module.SOURCE, module.MEASURES, module.CAPTION)


def _module(test: str) -> ModuleType | None:
    name = f"{__name__}.{test}"
    if not test.isidentifier() or test.startswith("_") or find_spec(name) is None:
        return None
    return import_module(name)


def figure_rows(
    path: Path, columns: Sequence[str] | None = None, most: int = MOST_ROWS
) -> tuple[dict[str, NDArray[Any]], str]:
    """Rows of a record that were measured, without those whose logits were not finite.

    Of a record with more than a million rows only the rows of some texts are read, chosen by a
    hash of their dataset index and never the first ones: corpora are sorted.

    Args:
        path: The record.
        columns: Columns to read beside `index`, `position`, `prediction` and `max_attention`,
            where the record holds them; None: all but lists of varying length.
        most: About how many rows to read at most.

    Returns:
        Columns (R,) or (R, K), and a sentence for the caption where rows were left out.
    """
    from attnlight.data.selection import choose

    held = record_columns(path)
    wanted = [n for n, ragged in held.items() if not ragged] if columns is None else columns
    names = [name for name in dict.fromkeys([*_ALWAYS, *wanted]) if name in held]
    rows, texts = int(read_metadata(path)["rows"]), None
    if rows > most:
        found = [np.unique(piece["index"]) for piece in read_pieces(path, ["index"])]
        every = np.unique(np.concatenate(found))
        texts = choose(every, max(1, int(most / rows * len(every))), seed=0)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    for piece in read_pieces(path, names, measured="prediction" in held):
        chosen = slice(None) if texts is None else np.isin(piece["index"], texts)
        for name in names:
            parts[name].append(piece[name][chosen])
    kept = {name: np.concatenate(part or [np.empty(0)]) for name, part in parts.items()}
    shown = len(kept["index"])
    note = f"Shows {shown:,} of {rows:,} rows, those of texts chosen by a hash."
    return kept, "" if texts is None else note


def is_whole(path: Path) -> bool:
    """Whether a record has all its measures: of some runs, as in docs/results, a part is kept."""
    return set(read_metadata(path).get("measures", ())) <= record_columns(path).keys()
