"""Splits of a corpus on their way into its prepared folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlight.data.documents import DocumentReader
from attnlight.data.duplicates import also_in, text_keys
from attnlight.data.selection import Kept, Selection
from attnlight.data.sources import Source
from attnlight.data.splits import ordered
from attnlight.data.tokenization import TextRules, count_tokens


class Reader(Protocol):
    """Reads the texts of a source."""

    source: Source

    def texts(self, rows: NDArray[np.int64]) -> Iterator[list[str]]:
        """The texts of these rows, which must ascend, in chunks."""


AnyReader = TypeVar("AnyReader", bound=Reader)


@dataclass
class Part(Generic[AnyReader]):
    """A split on its way.

    Attributes:
        reader: Reads the source.
        kept: The rows of the split.
        labels: Class of each row of the source, (rows,).
        keys: A number for the text of each row of the source (`text_keys`), (rows,).
    """

    reader: AnyReader
    kept: Kept
    labels: NDArray[np.int64]
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, reader: AnyReader, kept: Kept, labels: NDArray[np.int64]) -> Part[AnyReader]:
        """The split of some rows of a source; only their texts are read."""
        return cls(reader, kept, labels, text_keys(reader.texts(kept.rows), kept.rows, len(labels)))

    def texts(self) -> Iterator[list[str]]:
        """The texts of the split, in chunks."""
        return self.reader.texts(self.kept.rows)


def open_documents(
    reader: DocumentReader, labels: NDArray[np.int64], rules: TextRules, selection: Selection
) -> Part[DocumentReader]:
    """The split of all texts that have a class and a length within the limits.

    Args:
        reader: Reads the source.
        labels: Class of each of its rows, -1 for those to drop, (rows,).
        rules: What a token is.
        selection: The limits.

    Raises:
        InputError: No row is left.
    """
    kept = Kept(str(reader.source), np.arange(len(labels)))
    kept.keep(np.flatnonzero(labels >= 0), "classes", reader.source.classes)
    if (selection.min_tokens, selection.max_tokens) != (None, None):
        selection.by_length(kept, count_tokens(rules, reader.texts(kept.rows)))
    return Part.of(reader, kept, labels)


def divide(
    parts: Mapping[str, Part[AnyReader]], selection: Selection, complete: bool = True
) -> tuple[dict[str, Part[AnyReader]], dict[str, dict[str, dict[str, int]]]]:
    """All splits after selection, in order, and how many of their texts another one has, too.

    Args:
        parts: The splits that have a source; others are taken from the training texts.
        selection: What is split off and chosen.
        complete: Refuse a subset of a split that is not there.

    Returns:
        The splits, and for each what `also_in` counts.

    Raises:
        InputError: No text can be split off, or `subset` asks for more than there are.
    """
    if train := parts.get("train"):
        moved = selection.divide(train.kept, train.labels, train.keys)
        parts = {**parts, **{split: replace(train, kept=kept) for split, kept in moved.items()}}
    parts = ordered(parts)
    selection.cut({split: part.kept for split, part in parts.items()}, complete)
    return parts, also_in({split: part.keys[part.kept.rows] for split, part in parts.items()})


def count_words(split: str, counts: dict[str, Any]) -> str:
    """Counts of a split in words: "test 7 (1 empty, kept as one unknown token; 2 also in train)"."""
    kinds = {"empty": "empty, kept as one unknown token", "dropped": "dropped"}
    notes = [f"split {counts['split']}"] if "split" in counts else []
    notes += [f"{counts[kind]:,} {words}" for kind, words in kinds.items() if counts.get(kind)]
    if counts.get("cut"):
        lost = f"{counts['cut_sentences']:,} sentences and {counts['cut_tokens']:,} tokens"
        notes.append(f"{counts['cut']:,} cut by {lost}")
    notes += [f"{n:,} also in {other}" for other, n in counts.get("also_in", {}).items()]
    return f"{split} {counts['rows']:,}" + (f" ({'; '.join(notes)})" if notes else "")
