"""Texts of a run: those of a test that a page shows, and how people read them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS
from attnlight.figures.tables import class_name
from attnlight.records import KEY, RecordFile, Source, read_record
from attnlight.report.join_pieces import Piece, join_pieces

_LETTERS = 60  # most of a token
COLUMNS = (*KEY, "tokens", "items", "attention", "probabilities", "label")
BOUNDARY = {SPECIAL_TOKENS[BOS], SPECIAL_TOKENS[EOS]}
LAYERS = {
    "attention": "attention",
    "input_gradient": "gradient",
    "occlusion": "occlusion",
    "loo": "leave-one-out",
    "integrated_gradients": "integrated gradients",
    "minimal": "smallest flip set",
    "worst_case": "worst-case attention",
}
TRANSLATED = "translated so far"
ENDS = 10  # typical and extreme texts of a test

Row = tuple[int, int]  # dataset index and position


class Chosen(NamedTuple):
    """Texts of a test by a column of its record, each a row with its value."""

    column: str
    lowest: list[tuple[Row, float]]  # half of the extreme texts
    highest: list[tuple[Row, float]]  # the other half
    typical: list[tuple[Row, float]]  # texts whose values are nearest to the median

    @property
    def rows(self) -> list[Row]:
        """All rows of it."""
        return [row for part in self[1:] for row, _ in part]


def text_name(row: Row) -> str:
    """The name of an instance where space is short: `text 12`, or `text 12:3` with a position."""
    index, position = row
    return f"text {index}" + f":{position}" * (position > 0)


def query_label(texts: RecordFile) -> str:
    """What stands before the query of a text; of translations, whose rows are no items, the words so far."""
    translation = texts.metadata.get("model", {}).get("problem") == "translation"
    return TRANSLATED if translation else "query"


def words_before(
    row: Row, predicted: Mapping[Row, tuple[float, Any]], classes: Sequence[str] | None
) -> str:
    """The words of a translation before the one that a row predicts.

    Args:
        row: Dataset index and position.
        predicted: By row its label, NaN if the model wrote the translation, and its probabilities (C,).
        classes: Names of the classes; None: their numbers.
    """
    index, position = row
    before = (predicted[index, place] for place in range(position))
    words = (int(np.argmax(p) if np.isnan(label) else label) for label, p in before)
    return " ".join(["…", *(class_name(word, classes) for word in words)])


def link_column(rows: Mapping[str, NDArray[Any]], chosen: Sequence[Row]) -> NDArray[np.float64]:
    """Place of each row of a record among the chosen ones, NaN for others, (R,)."""
    places = {row: place for place, row in enumerate(chosen)}
    links = np.full(len(rows["index"]), np.nan)
    for place in np.flatnonzero(np.isin(rows["index"], [index for index, _ in chosen])):
        row = int(rows["index"][place]), int(rows["position"][place])
        links[place] = places.get(row, np.nan)
    return links


def choose_texts(record: Source, column: str, texts: Source) -> Chosen | None:
    """Ten extreme and ten typical texts of a test, of those that a record of texts has.

    Of several rows of one text only one is taken. Equal values are in a random order of a fixed
    seed. None if a record lacks the column or a key, or no row of both is defined.
    """
    if not {*KEY, column} <= RecordFile.of(record).columns.keys():
        return None
    shown = pd.DataFrame(read_record(texts, KEY).columns)
    found = pd.DataFrame(read_record(record, [*KEY, column]).columns).merge(shown).dropna()
    if found.empty:
        return None
    rows = list(zip(*(found[name].tolist() for name in KEY), strict=True))
    values = found[column].to_numpy(np.float64)
    numbers = values.tolist()
    random = np.random.default_rng(0).permutation(len(values))

    def first(keys: NDArray[np.float64], number: int, taken: Sequence[Row] = ()) -> list[Any]:
        """The rows of the smallest keys, of each text one, without those of `taken`."""
        found: dict[int, tuple[Row, float]] = {}
        used = {index for index, _ in taken}
        for place in random[np.argsort(keys[random], kind="stable")]:
            if len(found) < number and rows[place][0] not in used:
                found.setdefault(rows[place][0], (rows[place], numbers[place]))
        return list(found.values())

    lowest = first(values, ENDS // 2)
    highest = first(-values, ENDS // 2, [row for row, _ in lowest])
    taken = [row for row, _ in (*lowest, *highest)]
    return Chosen(column, lowest, highest, first(np.abs(values - np.median(values)), ENDS, taken))


def pieces_of(row: Mapping[str, Any]) -> list[Piece]:
    """The pieces of the text of a row of the file, without special tokens that attention ignores."""
    sizes = np.zeros(len(row["tokens"]), dtype=np.int64)
    for start, end in row["items"]:
        sizes[start:end] = end - start
    text, offsets = row.get("text") or "", row.get("offsets", ())
    known = (x == y for x, y in offsets) if text else (word in BOUNDARY for word in row["tokens"])
    special = [hidden and size != 1 for hidden, size in zip(known, sizes, strict=True)]
    return join_pieces(row["tokens"], special, text, offsets)


def shortened(word: str) -> str:
    """A word, cut if it is very long."""
    return word if len(word) <= _LETTERS else f"{word[: _LETTERS - 1]}…"
