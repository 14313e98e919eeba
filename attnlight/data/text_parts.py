"""Splits of a corpus of labelled texts on their way: where their rows are, and which are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.data.documents import DocumentReader
from attnlight.data.duplicates import text_keys
from attnlight.data.selection import Kept, Selection
from attnlight.data.tokenization import TextRules, count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class TextPart:
    """A split on its way.

    Attributes:
        reader: Reads the source.
        labels: Class of each row of the source, -1 for those that `classes` drops, (rows,).
        keys: A number for the text of each row (`text_keys`), (rows,).
        kept: The rows of the split.
    """

    reader: DocumentReader
    labels: NDArray[np.int64]
    keys: NDArray[np.uint64]
    kept: Kept

    def named(self, split: str) -> dict[str, str]:
        """The split of the source, where the corpus has another name for it, for `corpus.json`."""
        name = str(self.reader.source.split)
        return {} if name in (split, "train") else {"split": name}

    def texts(self) -> Iterator[list[str]]:
        """The texts that it keeps, in chunks."""
        return self.reader.texts(self.kept.rows)


def open_part(
    reader: DocumentReader, labels: NDArray[np.int64], rules: TextRules, selection: Selection
) -> TextPart:
    """The rows of a source that have a class and whose lengths are within the limits.

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
    if selection.counts_tokens:
        selection.by_length(kept, count_tokens(rules, reader.texts(kept.rows)))
    keys = text_keys(reader.texts(kept.rows), kept.rows, len(labels))
    return TextPart(reader, labels, keys, kept)
