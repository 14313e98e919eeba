"""Splits of a corpus of tagged sentences: where their rows are, and the tags that occur in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlight.data.bio import check_tags, split_tag, tags_of
from attnlight.data.conll import load_columns
from attnlight.data.duplicates import text_keys
from attnlight.data.selection import Kept
from attnlight.data.sources import Source
from attnlight.data.splits import CURES
from attnlight.data.tagged import Tagged, TaggedReader
from attnlight.errors import InputError


@dataclass
class TaggedPart:
    """A split on its way: its source's reader and the rows it keeps."""

    reader: TaggedReader
    kept: Kept

    def sentences(self) -> Iterator[Tagged]:
        """The sentences that it keeps, in the order of the source."""
        return self.reader(self.kept.rows)

    def keys(self) -> NDArray[np.uint64]:
        """A number for the words of each row of the source (`text_keys`), (rows,)."""
        texts = ([" ".join(sentence.words)] for sentence in self.sentences())
        return text_keys(texts, self.kept.rows, len(self.reader.rows))


def open_part(
    split: str, source: Source, columns: Sequence[int | str], scratch: Path
) -> TaggedPart:
    """All rows of a split that have a token.

    Args:
        split: Name of the split.
        source: Where it is.
        columns: Columns of words, of tags and, where they are read, of part-of-speech tags: names,
            or, where the source is a folder of column files, numbers.
        scratch: Folder for what reading leaves behind, the same for all splits of a corpus.

    Raises:
        InputError: A column is missing or of another type, or there is no such column file.
    """
    names = [str(column) for column in columns]
    numbers = [column for column in columns if isinstance(column, int)]
    if numbers:
        file = _column_file(source)
        rows = load_columns(file, numbers, scratch / f"{split}.columns")
        reader = TaggedReader(rows, source, names, file)
    else:
        reader = TaggedReader(source.load(scratch, CURES[split]), source, names)
    lengths = reader.lengths()
    kept = Kept(str(source), np.arange(len(lengths)))
    kept.keep(np.flatnonzero(lengths), "empty", "rows without a token")
    return TaggedPart(reader, kept)


def found_tags(train: TaggedPart, chunks: Sequence[str] | None) -> list[str]:
    """The tags of a corpus, in the order of their numbers.

    Args:
        train: The training split.
        chunks: Chunk types in order, in place of the tags that the source names or, where it names
            none, of those that occur.

    Raises:
        InputError: A tag is not of the scheme, or every tag is O.
    """
    if chunks is not None:
        return tags_of(list(chunks))
    named = train.reader.tag_names
    if named is not None:
        check_tags(f"the tags of {train.reader.source}", named, named, strict=False)
        return named
    types = set()
    for sentence in train.sentences():
        check_tags(sentence.place, sentence.tags, sentence.tags, strict=False)
        types |= {split_tag(tag)[1] for tag in sentence.tags}
    if not types - {""}:
        raise InputError(f"{train.reader.source} has no chunk: every tag is O.")
    return tags_of(sorted(types - {""}))


def _column_file(source: Source) -> Path:
    if source.folder is None:
        raise InputError(
            f"{source.path} is no local folder; numbered columns are those of column files in one."
        )
    file = source.folder / str(source.split)
    if not file.is_file():
        raise InputError(f"there is no column file {file}.")
    return file
