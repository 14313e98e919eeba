"""The documents of a source, read in chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow
from numpy.typing import NDArray

from attnlight.data.columns import is_text, list_element, read_columns, require_columns
from attnlight.data.sources import Dataset, Source
from attnlight.errors import InputError

ENCODE_CHARACTERS = 1_000_000  # `tokenizers` needs about 20 bytes per character


@dataclass
class Documents:
    """Some documents of a source.

    Attributes:
        rows: Row of each in the source, (n,).
        texts: Strings to tokenise: the text columns or the pre-split tokens, joined with spaces.
        words: The pre-split tokens, or None.
        extras: Per-token columns of the pre-split tokens.
    """

    rows: NDArray[np.int64]
    texts: list[str]
    words: list[list[str]] | None
    extras: dict[str, list[list[float]]]

    def chunks(self) -> Iterator["Documents"]:
        """The same documents in parts of limited total length."""
        ends = np.cumsum([len(text) for text in self.texts])
        cuts = (np.flatnonzero(np.diff(ends // ENCODE_CHARACTERS)) + 1).tolist()
        for start, stop in zip([0, *cuts], [*cuts, len(self.texts)], strict=True):
            words = self.words and self.words[start:stop]
            extras = {name: column[start:stop] for name, column in self.extras.items()}
            yield Documents(self.rows[start:stop], self.texts[start:stop], words, extras)


@dataclass
class DocumentReader:
    """Reads the documents of a source in chunks, from the text or token columns that it names.

    Of the columns `per_token` and `remove` (`TokenColumns`) whole numbers are stored in one byte each,
    others in four: `extras` has their types. The texts of several columns are joined by `joint`; with
    `line_breaks` a backslash before an n is read as one.
    """

    rows: Dataset
    source: Source
    per_token: Sequence[str] = ()
    joint: str = " "
    line_breaks: bool = False
    remove: str | None = None

    def __post_init__(self) -> None:
        removed, source = [] if self.remove is None else [self.remove], self.source
        aligned = dict.fromkeys([*self.per_token, *removed])
        require_columns(self.rows, source, [*source.columns, *aligned])
        schema = self.rows.features.arrow_schema
        for name in source.columns:
            kind = schema.field(name).type
            if not is_text(kind if source.tokens is None else list_element(kind)):
                expected = "text" if source.tokens is None else "a list of strings"
                raise InputError(f"column {name} of {source} holds {kind}; expected {expected}")
        self._aligned: dict[str, pyarrow.DataType] = {}  # extras, and the column of `remove`
        for name in aligned:
            kind = schema.field(name).type
            element = list_element(kind)
            if pyarrow.types.is_integer(element) or pyarrow.types.is_boolean(element):
                self._aligned[name] = pyarrow.int8()
            elif pyarrow.types.is_floating(element):
                self._aligned[name] = pyarrow.float32()
            else:
                raise InputError(
                    f"column {name} of {source} holds {kind}; expected a list of numbers"
                )
        self.extras = {name: self._aligned[name] for name in self.per_token}

    def __call__(self, rows: NDArray[np.int64]) -> Iterator[Documents]:
        """The documents of these rows, which must ascend."""
        for chunk, table in read_columns(self.rows, [*self.source.columns, *self._aligned], rows):
            columns = [table[name].to_pylist() for name in self.source.columns]
            if self.source.tokens is None:
                parts = zip(*columns, strict=True)
                texts = [self.joint.join(part or "" for part in row) for row in parts]
                if self.line_breaks:
                    texts = [text.replace("\\n", "\n") for text in texts]
                yield from Documents(chunk, texts, None, {}).chunks()
                continue
            words = [[word or "" for word in tokens or ()] for tokens in columns[0]]
            extras: dict[str, list[list[float]]] = {}
            for name, kind in self._aligned.items():
                try:
                    values = table[name].cast(pyarrow.list_(kind)).to_pylist()
                except pyarrow.ArrowInvalid as error:
                    raise InputError(
                        f"column {name} of {self.source} cannot be stored as {kind}: {error}"
                    ) from error
                extras[name] = [numbers or [] for numbers in values]
                for row, numbers, tokens in zip(chunk, extras[name], words, strict=True):
                    if len(numbers) != len(tokens) or None in numbers:
                        raise InputError(
                            f"row {row} of {self.source} has {len(tokens)} tokens; {name} must have "
                            "a number for each"
                        )
            if self.remove is not None:
                kept = [[not number > 0 for number in row] for row in extras[self.remove]]
                words = [list(compress(*row)) for row in zip(words, kept, strict=True)]
                extras = {
                    name: [list(compress(*row)) for row in zip(extras[name], kept, strict=True)]
                    for name in self.extras
                }
            texts = [" ".join(tokens) for tokens in words]
            yield from Documents(chunk, texts, words, extras).chunks()

    def texts(self, rows: NDArray[np.int64]) -> Iterator[list[str]]:
        """The texts of these rows, in chunks."""
        return (documents.texts for documents in self(rows))
