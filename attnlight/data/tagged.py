"""Sentences with a tag for each token: read, checked, and batched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.batch import BOS, PAD, SPECIAL_TOKENS, TextBatch
from attnlight.data.columns import is_text, list_element, require_columns
from attnlight.data.conll import LINE
from attnlight.data.dataset import TokenDataset
from attnlight.data.features import CHARACTERS, TokenFeatures
from attnlight.data.sources import Source, silent
from attnlight.data.targets import IGNORED, Target
from attnlight.data.tokenization import encode_texts
from attnlight.errors import InputError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset
    from tokenizers import Tokenizer

TAGS = "tags"
_READ_ROWS = 1000


class Tagged(NamedTuple):
    """A sentence of T tokens.

    Attributes:
        row: Its row in the source.
        place: What messages call it.
        words: (T,).
        tags: (T,).
        pos: Part-of-speech tags (T,), or None where they are not read.
        marked: The token whose tag is asked for, where one is.
    """

    row: int
    place: str
    words: list[str]
    tags: list[str]
    pos: list[str] | None
    marked: int = 0


class TaggedReader:
    """Read sentences of a source.

    Args:
        rows: The source's rows.
        source: Where they come from, for messages.
        columns: The columns of words, of tags and, where they are read, of part-of-speech tags:
            lists of strings, or of whole numbers, which may have names.
        file: The file of columns that the rows were read from, if they were.

    Raises:
        InputError: A column is missing or of another type.
    """

    def __init__(
        self, rows: Dataset, source: Source, columns: Sequence[str], file: Path | None = None
    ) -> None:
        require_columns(rows, source, columns)
        self.rows = rows
        self.source = source
        self.columns = list(columns)
        self.file = file
        self.names = {name: self._names(name) for name in columns}

    def _names(self, column: str) -> list[str] | None:
        """Names of a column's numbers, where it has numbers with names."""
        import pyarrow

        element = list_element(self.rows.features.arrow_schema.field(column).type)
        if is_text(element):
            return None
        if not pyarrow.types.is_integer(element) or column == self.columns[0]:
            wanted = "strings" if column == self.columns[0] else "strings or whole numbers"
            raise InputError(f"column {column} of {self.source} holds no lists of {wanted}")
        feature = self.rows.features[column]
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return None if names is None else list(names)

    @property
    def tag_names(self) -> list[str] | None:
        """Names that the source itself gives its tags, whether they occur or not."""
        return self.names[self.columns[1]]

    def lengths(self) -> NDArray[np.int64]:
        """Words of each row of the source, (n,)."""
        import pyarrow.compute

        words = self.rows.select_columns(self.columns[:1]).with_format("arrow")[:][self.columns[0]]
        counted = pyarrow.compute.fill_null(pyarrow.compute.list_value_length(words), 0)
        return np.asarray(counted.to_numpy(), np.int64)

    def __call__(self, rows: NDArray[np.int64]) -> Iterator[Tagged]:
        """The sentences of these rows, which must ascend; no row may be empty.

        Raises:
            InputError: A sentence lacks a value for a token, or holds a word with white space.
        """
        lines = [LINE] if self.file is not None else []
        stored = self.rows.select_columns([*self.columns, *lines]).with_format("arrow")
        for chunk, table in enumerate(stored.iter(_READ_ROWS)):
            start = chunk * _READ_ROWS
            first, last = np.searchsorted(rows, (start, start + _READ_ROWS))
            if first < last:
                yield from self._sentences(rows[first:last], table.take(rows[first:last] - start))

    def _sentences(self, rows: NDArray[np.int64], table: Any) -> Iterator[Tagged]:  # noqa: ANN401
        lists = [self._values(name, table[name].to_pylist()) for name in self.columns]
        lines = table[LINE].to_pylist() if self.file is not None else [None] * len(rows)
        for row, line, *columns in zip(rows.tolist(), lines, *lists, strict=True):
            place = f"sentence {row} of {self.source}"
            if line is not None:
                place = f"the sentence from line {line} of {self.file}"
            self._check(place, columns)
            yield Tagged(row, place, columns[0], columns[1], columns[2] if columns[2:] else None)

    def _values(self, column: str, lists: list[list[Any] | None]) -> list[list[Any]]:
        names = self.names[column]
        if names is None:
            return [[None if v is None else str(v) for v in found or ()] for found in lists]
        known = dict(enumerate(names))
        return [[known.get(v) for v in found or ()] for found in lists]

    def _check(self, place: str, columns: Sequence[list[Any]]) -> None:
        words = columns[0]
        for name, values in zip(self.columns, columns, strict=True):
            if len(values) != len(words) or None in values:
                raise InputError(
                    f"{place} has {len(words)} words; column {name} must have a value for each."
                )
        for word in words:
            if word.split() != [word]:
                raise InputError(f"{place} has the word {word!r}, which is empty or has a space.")


class TaggedDataset(TokenDataset):
    """Sentences of one split of a prepared corpus.

    Labels of a batch are (B, N), -100 on padding and where nothing is asked for.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.extras.remove(TAGS)

    def __reduce__(self) -> tuple[Any, ...]:
        return TaggedDataset, (self.folder,)

    @override
    def __getitem__(self, positions: int | Sequence[int]) -> TextBatch:
        batch = super().__getitem__(positions)
        batch.labels = batch.extras.pop(TAGS).long().masked_fill(~batch.mask, IGNORED)
        return batch

    @override
    def words(self, position: int) -> list[str]:
        words: list[str] = self._table["words"][position].as_py()
        before = len(self._tokens[position]) - len(words)
        return [SPECIAL_TOKENS[BOS]] * before + words


def write_tagged(
    folder: Path,
    sentences: Iterator[Tagged],
    tokenizer: Tokenizer,
    features: TokenFeatures,
    numbers: Mapping[str, int],
    target: Target,
) -> None:
    """Write a split of a prepared corpus (`CorpusDataModule`) without holding it in memory.

    Columns: `index`, `length`, `tokens`, `tags` (labels), those of the target and of the features,
    and `words`.

    Args:
        folder: Folder to write; `<folder>.arrow` is used on the way.
        sentences: The sentences, checked.
        tokenizer: Tokenizer of the corpus, which makes one token of each word.
        features: What else is kept of each token.
        numbers: Number of each tag.
        target: What is asked of a sentence.
    """
    import datasets
    import pyarrow

    stream, schema = folder.with_suffix(".arrow"), _schema(features, target)
    with pyarrow.ipc.new_stream(str(stream), schema) as writer:
        while chunk := list(islice(sentences, _READ_ROWS)):
            columns = _encoded(chunk, tokenizer, features, numbers, target)
            writer.write_table(pyarrow.table(columns, schema=schema))
    with silent():
        datasets.Dataset.from_file(str(stream)).save_to_disk(str(folder))
    stream.unlink()


def _schema(features: TokenFeatures, target: Target) -> pyarrow.Schema:
    import pyarrow

    columns = {"index": pyarrow.int64(), "length": pyarrow.int32()}
    columns |= {"tokens": pyarrow.list_(pyarrow.int32()), TAGS: pyarrow.list_(pyarrow.int16())}
    columns |= {name: pyarrow.list_(pyarrow.int8()) for name in target.columns}
    for name in features.rules.columns:
        packed = name.startswith(CHARACTERS)
        columns[name] = pyarrow.list_(pyarrow.int64() if packed else pyarrow.int32())
    return pyarrow.schema(columns | {"words": pyarrow.list_(pyarrow.string())})


def _encoded(
    sentences: Sequence[Tagged],
    tokenizer: Tokenizer,
    features: TokenFeatures,
    numbers: Mapping[str, int],
    target: Target,
) -> dict[str, Any]:
    ids, _ = encode_texts(tokenizer, [" ".join(sentence.words) for sentence in sentences])
    for sentence, found in zip(sentences, ids, strict=True):
        if len(found) != len(sentence.words):
            raise InputError(
                f"{sentence.place} has {len(sentence.words)} words, but {len(found)} tokens."
            )
    seen = [features.encode(sentence.words, sentence.pos) for sentence in sentences]
    labels = [target.labels(s.tags, numbers, s.marked) for s in sentences]
    marks = [[int(label != IGNORED) for label in found] for found in labels]
    none = [PAD] * len(target.before)
    return {
        "index": [sentence.row for sentence in sentences],
        "length": [len(found) for found in labels],
        "tokens": [[*target.before, *found] for found in ids],
        TAGS: labels,
        **dict.fromkeys(target.columns, marks),
        **{name: [[*none, *columns[name]] for columns in seen] for name in features.rules.columns},
        "words": [sentence.words for sentence in sentences],
    }
