"""Texts of a run with the scores of their items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.batch import BOS, EOS, SPECIAL_TOKENS
from attnlight.data.selection import choose
from attnlight.figures.tables import class_name
from attnlight.records import KEY, SCORES, RecordFile, Source, read_pieces, read_record
from attnlight.report.join_pieces import Piece, join_pieces, of_pieces

_TEXTS, _TOKENS, _LETTERS = 6, 400, 60  # most texts, of a text and of a token
COLUMNS = (*KEY, "tokens", "items", "attention", "probabilities", "label")
_OF_SOME_CORPORA = ("query", "text", "offsets", "answer")
BOUNDARY = {SPECIAL_TOKENS[BOS], SPECIAL_TOKENS[EOS]}
LAYERS = {
    "attention": "attention",
    "input_gradient": "gradient",
    "loo": "leave-one-out",
    "minimal": "smallest flip set",
    "worst_case": "worst-case attention",
}
ENDS = 10  # typical and extreme texts of a test

Row = tuple[int, int]  # dataset index and position


@dataclass(frozen=True)
class Token:
    """A token of a text on the page, or several that are parts of one character.

    Attributes:
        before: What stands between it and the token before.
        word: The token, shortened if it is very long; "" if only `before` follows the last one.
        shares: Its score by layer (of a sentence, that of the sentence) in per cent of the largest
            in the text, where it is not 0.
        values: The scores in words.
        predicted: Whether it is of the part of the text that is predicted, if instances are parts.
    """

    before: str
    word: str
    shares: Mapping[str, int]
    values: str
    predicted: bool


@dataclass(frozen=True)
class ShownText:
    """A text on the page.

    Attributes:
        row: Its dataset index and its position, 0 if the instance is the whole text.
        name: The same in words; without the position if instances are whole texts.
        prediction: The predicted class and its probability.
        label: The gold class; "" without one.
        query: Its query; "" without one.
        tokens: Its first tokens, without boundary tokens.
        hidden: Number of tokens that are left out at the end.
    """

    row: Row
    name: str
    prediction: str
    label: str
    query: str
    tokens: list[Token]
    hidden: int


class Chosen(NamedTuple):
    """Texts of a test by a column of its record, each a row with its value.

    Attributes:
        column: The column.
        lowest: Half of the extreme texts.
        highest: The other half.
        typical: Texts whose values are nearest to the median.
    """

    column: str
    lowest: list[tuple[Row, float]]
    highest: list[tuple[Row, float]]
    typical: list[tuple[Row, float]]

    @property
    def rows(self) -> list[Row]:
        """All rows of it."""
        return [row for part in self[1:] for row, _ in part]


def text_name(row: Row) -> str:
    """The name of an instance where space is short: `text 12`, or `text 12:3` with a position."""
    index, position = row
    return f"text {index}" + f":{position}" * (position > 0)


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
    seed.

    Returns:
        The texts; None if a record lacks the column or a key, or no row of both is defined.
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


def shown_texts(
    source: Source, classes: Sequence[str] | None, rows: Sequence[Row] | None = None
) -> list[ShownText]:
    """Texts of a file that `attnlight predict` or the test `texts` wrote.

    Args:
        source: The `predictions.parquet` of a run, or a record `texts`.
        classes: Names of the classes; None: their numbers.
        rows: The rows to show; None: the first rows of at most six texts, chosen by a hash of the
            dataset index.

    Returns:
        The texts in order; none if there is no such file, or it has not all columns of a text.

    Raises:
        RecordError: The file is damaged.
    """
    file = RecordFile.of(source)
    available = file.columns if file.path.is_file() else {}
    if not set(COLUMNS) <= available.keys():
        return []
    scores = [f"{SCORES}{name}" for name in LAYERS]
    columns = [*COLUMNS, *(name for name in (*_OF_SOME_CORPORA, *scores) if name in available)]
    wanted, keys = None if rows is None else set(rows), read_record(file, KEY).columns
    chosen = np.unique(keys["index"] if rows is None else [index for index, _ in rows])
    if rows is None and len(chosen):
        chosen = choose(chosen, _TEXTS, seed=0)
    of_parts = bool(keys["position"].any())
    shown: dict[Row, ShownText] = {}
    seen: set[int] = set()
    for piece in read_pieces(file, columns, texts=chosen.astype(np.int64)):
        for place, key in enumerate(zip(*(piece[name].tolist() for name in KEY), strict=True)):
            if key in wanted if wanted is not None else key[0] not in seen:
                row = {name: values[place] for name, values in piece.items()}
                shown[key] = _shown_text(row, classes, of_parts)
                seen.add(key[0])
    return list(shown.values())


def _shown_text(row: Mapping[str, Any], classes: Sequence[str] | None, of_parts: bool) -> ShownText:
    """The text of one row of the file; `of_parts`: instances are tokens or sentences, as items are."""
    position, spans = int(row["position"]), [tuple(span) for span in row["items"]]
    span = position, position + 1
    sentences = any(end - start > 1 for start, end in spans)
    if sentences:
        span = spans[position] if position < len(spans) else (0, 0)
    part = range(*span) if of_parts else range(0)
    pieces = pieces_of(row)
    layers = {"attention": np.mean(list(row["attention"]), 0)}
    layers |= {name: row[SCORES + name] for name in LAYERS if SCORES + name in row}
    by_piece = {}
    for name, scores in layers.items():
        values = np.full(len(row["tokens"]), np.nan)
        for (start, end), score in zip(spans, scores, strict=True):
            values[start:end] = score
        # Of a sentence each token has the score of the whole.
        known = [None if np.isnan(value) else float(value) for value in values]
        joined = of_pieces(pieces, known, name == "minimal" or sentences)
        by_piece[name] = np.array(joined, dtype=np.float64)  # NaN where none is defined
    shares = {}
    for name, values in by_piece.items():
        largest = np.nan_to_num(np.abs(values)).max(initial=0) or 1.0
        shares[name] = (100 * np.nan_to_num(values) / largest).round().astype(int)
    tokens = [
        Token(
            shortened(piece.before),
            shortened(piece.text),
            {name: int(share[place]) for name, share in shares.items() if share[place]},
            _in_words({name: float(values[place]) for name, values in by_piece.items()}),
            any(token in part for token in piece.tokens),
        )
        for place, piece in enumerate(pieces)
    ]
    query = [shortened(word) for word in row.get("query", ()) if word not in BOUNDARY]
    likeliest = int(np.argmax(row["probabilities"]))
    predicted = shortened(row.get("answer") or class_name(likeliest, classes))
    return ShownText(
        row=(int(row["index"]), position),
        name=f"text {row['index']}" + f", position {position}" * of_parts,
        prediction=f"{predicted} ({row['probabilities'][likeliest]:.2f})",
        label=class_name(int(row["label"]), classes) if row["label"] >= 0 else "",
        query=" ".join(query[:_TOKENS]) + " …" * (len(query) > _TOKENS),
        tokens=tokens[:_TOKENS],
        hidden=sum(bool(token.word) for token in tokens[_TOKENS:]),
    )


def pieces_of(row: Mapping[str, Any]) -> list[Piece]:
    """The pieces of the text of a row of the file, without special tokens that attention ignores."""
    sizes = np.zeros(len(row["tokens"]), dtype=np.int64)
    for start, end in row["items"]:
        sizes[start:end] = end - start
    text, offsets = row.get("text") or "", row.get("offsets", ())
    known = (x == y for x, y in offsets) if text else (word in BOUNDARY for word in row["tokens"])
    special = [hidden and size != 1 for hidden, size in zip(known, sizes, strict=True)]
    return join_pieces(row["tokens"], special, text, offsets)


def _in_words(values: Mapping[str, float]) -> str:
    """Scores of a token by layer in words."""
    parts = []
    for name, value in values.items():
        if name == "minimal":
            parts += ["in the flip set"] * (value > 0)
        elif not np.isnan(value):
            parts.append(f"{LAYERS[name]} {value:.2g}")
    return ", ".join(parts)


def shortened(word: str) -> str:
    """A word, cut if it is very long."""
    return word if len(word) <= _LETTERS else f"{word[: _LETTERS - 1]}…"
