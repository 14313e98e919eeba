"""Read and check sentences with a tag for each token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray

from attnlight.data.bio import check_tags, has_chunks, split_tag, tags_of
from attnlight.data.columns import READ_ROWS, is_text, list_element, read_columns, require_columns
from attnlight.data.conll import LINE
from attnlight.data.features import FeatureRules
from attnlight.data.labels import feature_names
from attnlight.data.marks import check_columns
from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError


class Tagged(NamedTuple):
    """A sentence of T tokens.

    Attributes:
        row: Its row in the source.
        place: Description of the sentence in messages: its row, or its line in a file.
        words: (T,).
        tags: (T,).
        pos: Part-of-speech tags (T,), or None where they are not read.
        marks: Numbers of each token by name, (T,) each.
    """

    row: int
    place: str
    words: list[str]
    tags: list[str]
    pos: list[str] | None
    marks: Mapping[str, list[float]]


@dataclass(frozen=True)
class TaggedColumns:
    """The columns of tagged sentences: names or, in column files, numbers.

    Args:
        word_column: Column of the words; a number, from 0, in column files. Null: found
            (`find_columns`).
        label_column: Column of the tags; -1 is the last one of a column file. Null: found.
        pos_column: Column of part-of-speech tags, read only with `pos`.
        mark_columns: Columns with a number for each word, by name in `TextBatch.extras`:
            `{impermissible: 3}`.
    """

    word_column: int | str | None = None
    label_column: int | str | None = None
    pos_column: int | str | None = "pos_tags"
    mark_columns: dict[str, int | str] | None = None

    def read(self, features: FeatureRules) -> list[int | str]:
        """The columns of words, of tags and, where they are a feature, of part-of-speech tags."""
        marks = self.mark_columns or {}
        columns = (self.word_column, self.label_column, self.pos_column if features.pos else None)
        found = [column for column in columns if column is not None]
        named, options = [*found, *marks.values()], [field.name for field in fields(self)]
        options = options if marks else options[:-1]
        which = f"{', '.join(options[:-1])} and {options[-1]}"
        if features.pos and self.pos_column is None:
            raise InputError("pos needs the column of part-of-speech tags: set pos_column.")
        if len(set(named)) < len(named):
            raise InputError(f"{which} must be different columns.")
        if len({type(column) for column in named}) > 1:
            raise InputError(f"{which} must all be names, or, in column files, numbers.")
        check_columns("mark_columns", marks, features.columns)
        return found


@dataclass
class TaggedReader:
    """Reads the tagged sentences of a source, or of the column file that its rows were read from.

    The columns are those of words, of tags and, where they are read, of part-of-speech tags: lists of
    strings, or of whole numbers, which may have names; `marks` are those of numbers, by their new names.

    Attributes:
        names: Names of each column's numbers; None for a column of strings or unnamed numbers.
    """

    rows: Dataset
    source: Source
    columns: Sequence[str]
    file: Path | None
    marks: Mapping[str, str]

    def __post_init__(self) -> None:
        require_columns(self.rows, self.source, [*self.columns, *self.marks.values()])
        self.names: dict[str, list[str] | None] = dict.fromkeys(self.columns)
        for column in self.columns:
            element = list_element(self.rows.features.arrow_schema.field(column).type)
            if is_text(element):
                continue
            if not pyarrow.types.is_integer(element) or column == self.columns[0]:
                expected = "strings" if column == self.columns[0] else "strings or whole numbers"
                raise InputError(f"column {column} of {self.source} holds no lists of {expected}")
            names = feature_names(self.rows.features[column], of_lists=True)
            self.names[column] = None if names is None else list(names)

    def __call__(self, rows: NDArray[np.int64]) -> Iterator[Tagged]:
        """The sentences of these rows, which must ascend; no row may be empty."""
        source = str(self.source)  # evaluated once, as it accesses the disk
        strings = pyarrow.list_(pyarrow.string())
        stored = [*self.columns, *self.marks.values(), *([LINE] if self.file is not None else [])]
        for chunk, table in read_columns(self.rows, stored, rows):
            lists = []
            for column, names in self.names.items():
                stored_lists = table[column] if names is not None else table[column].cast(strings)
                values = [row_values or [] for row_values in stored_lists.to_pylist()]
                if names is not None:
                    by_number = dict(enumerate(names))
                    values = [[by_number.get(number) for number in numbers] for numbers in values]
                lists.append(values)
            for column in self.marks.values():
                try:
                    numbers = table[column].cast(pyarrow.list_(pyarrow.float64()))
                except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
                    raise InputError(
                        f"column {column} of {source} holds no lists of numbers: {error}"
                    ) from error
                lists.append([row_values or [] for row_values in numbers.to_pylist()])
            places = [f"sentence {row} of {source}" for row in chunk]
            if self.file is not None:
                lines = table[LINE].to_pylist()
                places = [f"the sentence from line {line} of {self.file}" for line in lines]
            for row, place, words, *others in zip(chunk.tolist(), places, *lists, strict=True):
                columns = [*self.columns, *self.marks.values()]
                for column, values in zip(columns, (words, *others), strict=True):
                    if len(values) != len(words) or None in values:
                        raise InputError(
                            f"{place} has {len(words)} words; column {column} must have a value for "
                            "each."
                        )
                for word in words:
                    if word.split() != [word]:
                        raise InputError(
                            f"{place} has the word {word!r}, which is empty or contains a space."
                        )
                tags, *pos = others[: len(self.columns) - 1]
                marks = dict(zip(self.marks, others[len(self.columns) - 1 :], strict=True))
                yield Tagged(row, place, words, tags, pos[0] if pos else None, marks)

    def texts(self, rows: NDArray[np.int64]) -> Iterator[list[str]]:
        """The words of these rows, joined with spaces, in chunks."""
        texts = (" ".join(sentence.words) for sentence in self(rows))
        return iter(lambda: list(islice(texts, READ_ROWS)), [])


def corpus_tags(
    reader: TaggedReader, rows: NDArray[np.int64], chunks: Sequence[str] | None
) -> list[str]:
    """The tags of a corpus, in the order of their numbers, from the rows of its training split.

    They are those of chunk types in order, of the BIO scheme, or without these the tags named by
    the source or, if it names none, those of the scheme that occurs (BIO, BIOES, BILOU, IO), or
    plain tags, such as parts of speech, in alphabetical order.
    """
    if chunks is not None:
        return tags_of(list(chunks))
    named = reader.names[reader.columns[1]]
    if named is not None:
        check_tags(f"the tags of {reader.source}", named, valid=named, strict=False)
        return named
    occurring = {tag for sentence in reader(rows) for tag in sentence.tags}
    if not occurring - {"O"}:
        raise InputError(f"{reader.source} has no chunk: every tag is O.")
    if not has_chunks(occurring):
        return sorted(occurring)
    for sentence in reader(rows):
        check_tags(sentence.place, sentence.tags, valid=occurring, strict=False)
    found, types = map(set, zip(*map(split_tag, occurring - {"O"}), strict=True))
    scheme = next(s for s in ("I", "BI", "BIES", "BILU", "BIELSU") if found <= {*s})
    return tags_of(sorted(types), scheme)
