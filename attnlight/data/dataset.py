"""One split of a prepared corpus, written as a stream and read by memory map."""

import bisect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from shutil import rmtree
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from torch.utils.data import Dataset

from attnlight.batch import BOS, SEGMENT, SPECIAL_TOKENS, TextBatch
from attnlight.data.collate import allow_classes, collate, pad_ragged, with_queries, with_targets
from attnlight.data.columns import READ_ROWS
from attnlight.data.raw_text import RawText
from attnlight.data.sources import silent
from attnlight.data.targets import IGNORED
from attnlight.data.tokenization import Surface, surface_of
from attnlight.errors import InputError
from attnlight.storage.files import named_errors

EDIT_OF = "edit_of"
_NUMBERS = pyarrow.list_(pyarrow.int32())
# Columns of a split and their types; all others are aligned with the tokens.
COLUMNS = {
    **dict.fromkeys(("index", "label", EDIT_OF), pyarrow.int64()),
    "length": pyarrow.int32(),
    **dict.fromkeys(("tokens", "sentences", "query", "target", "links"), _NUMBERS),
    "allowed": pyarrow.list_(pyarrow.int16()),
    **dict.fromkeys(("text", "query_text", "target_text"), pyarrow.string()),
    "words": pyarrow.list_(pyarrow.string()),
}
TAGS = "tags"  # in place of "label" where each token has a label


@contextmanager
def split_writer(
    folder: Path, kinds: Mapping[str, pyarrow.DataType] = MappingProxyType({})
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Write a split of a prepared corpus (`CorpusDataModule`) without holding it in memory.

    Yields a function that appends rows, a mapping from each column to its values, always the same
    columns; the split is complete after the block. `kinds` are the types of columns beside `COLUMNS`,
    or in place of theirs; `<folder>.arrow` is a temporary file.

    Raises:
        InputError: The disk is full or the folder cannot be written.
    """
    import datasets

    stream, known = folder.with_suffix(".arrow"), {**COLUMNS, **kinds}
    with named_errors(folder), silent():
        with ExitStack() as stack:
            writers: list[pyarrow.RecordBatchStreamWriter] = []

            def write(rows: Mapping[str, Any]) -> None:
                schema = pyarrow.schema({name: known[name] for name in rows})
                if not writers:
                    new = pyarrow.ipc.new_stream(str(stream), schema)
                    writers.append(stack.enter_context(new))
                writers[0].write_table(pyarrow.table(dict(rows), schema=schema))

            yield write
        datasets.Dataset.from_file(str(stream)).save_to_disk(str(folder))
        stream.unlink()


class _RaggedColumn:
    """A list column as zero-copy views: the offsets, values and first row of each stored chunk."""

    def __init__(self, column: pyarrow.ChunkedArray) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self.offsets = [chunk.offsets.to_numpy(zero_copy_only=True) for chunk in chunks]
        self.values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self.starts = np.cumsum([0] + [len(chunk) for chunk in chunks])[:-1].tolist()

    def __getitem__(self, position: int) -> NDArray[Any]:
        chunk = bisect.bisect_right(self.starts, position) - 1
        row, offsets = position - self.starts[chunk], self.offsets[chunk]
        values: NDArray[Any] = self.values[chunk][offsets[row] : offsets[row + 1]]
        return values


class TokenDataset(Dataset[TextBatch]):
    """Texts or pairs of one split; `dataset[[3, 1, 4]]` is a batch.

    The texts of pairs are their passages. Batches of pairs also have `query`, `query_mask` and, if
    the corpus restricts the answers, `allowed_classes`. Labels of tokens are (B, N), -100 on padding
    and on tokens that are not predicted. Beyond the memory map, 20 bytes per text are in memory.

    Args:
        folder: The split's folder in a prepared corpus (`CorpusDataModule`).
        nested: Keep the S sentences of a text separate: tokens, mask and extras of a batch are
            (B, S, N) instead of (B, N).
        whole_words: Keep the tokens of each of W words separate in the same way: (B, W, N).

    Attributes:
        index: Row of each text in its source, before filtering, (n,) int64.
        lengths: Number of ids of each text, (n,) int32.
        paired: Whether each text has a query.
        labels: Class of each text, (n,) int64; None if texts have no labels.
        edit_of: Row of the text of this split that each text is an edit of, -1 for other texts, (n,)
            int64; None if the corpus does not say.
        extras: Names of the columns aligned with the tokens, other than the tokens' labels.
        table: All columns, read by memory map.

    Raises:
        InputError: `nested`, but the corpus was prepared without sentences.
    """

    def __init__(self, folder: str | Path, nested: bool = False, whole_words: bool = False) -> None:
        import datasets

        self.folder = Path(folder)
        self.nested, self.whole_words = nested, whole_words
        rows = datasets.load_from_disk(str(folder), keep_in_memory=False)
        self.table: pyarrow.Table = rows.data.table
        names = self.table.column_names
        self.index = self.table["index"].to_numpy().astype(np.int64, copy=False)
        lengths = self.table["length"].to_numpy()
        self.lengths: NDArray[np.int32] = lengths.astype(np.int32, copy=False)
        self.labels: NDArray[np.int64] | None = None
        if "label" in names:
            self.labels = self.table["label"].to_numpy().astype(np.int64, copy=False)
        self.edit_of: NDArray[np.int64] | None = None
        if EDIT_OF in names:
            self.edit_of = self.table[EDIT_OF].to_numpy().astype(np.int64, copy=False)
        self.extras = [name for name in names if name not in COLUMNS]
        self._tokens = _RaggedColumn(self.table["tokens"])
        if nested and "sentences" not in names:
            raise InputError(f"{folder} was prepared without sentences.")
        if "sentences" in names:
            self._sentences = _RaggedColumn(self.table["sentences"])
        self.paired = "query" in names
        pair_columns = [name for name in ("query", "allowed", "target", "links") if name in names]
        self._pair = {name: _RaggedColumn(self.table[name]) for name in pair_columns}
        self._extras = {name: _RaggedColumn(self.table[name]) for name in self.extras}
        self._has_token_labels = self.labels is None and TAGS in names
        if self._has_token_labels:
            self.extras.remove(TAGS)  # kept in `_extras`, to be padded alike

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker opens its own memory map instead of receiving a copy of the corpus.
        return type(self), (self.folder, self.nested, self.whole_words)

    def __len__(self) -> int:
        return len(self.index)

    def label_counts(self, classes: int) -> list[int]:
        """Number of texts, or of tokens, of each of the classes; the split must have labels."""
        counts = np.zeros(classes, np.int64)
        name = "label" if self.labels is not None else TAGS if TAGS in self._extras else "target"
        for chunk in self.table[name].chunks:
            labels = (chunk.flatten() if self.labels is None else chunk).to_numpy()
            counts += np.bincount(labels[labels != IGNORED], minlength=classes)
        return list(map(int, counts))

    def token_counts(self, size: int) -> NDArray[np.int64]:
        """How often each of `size` ids occurs, boundary tokens included; of pairs, in passages."""
        counts = np.zeros(size, np.int64)
        for chunk in self.table["tokens"].chunks:
            counts += np.bincount(chunk.flatten().to_numpy(), minlength=size)
        return counts

    @property
    def shapes(self) -> NDArray[np.int32]:
        """Sizes of each text that determine the padding of a batch, for sorting by size.

        Numbers of ids, (n,); for pairs, of ids of passage and query, or of source and target, (n, 2);
        if nested, of sentences and of ids of the longest one, (n, 2).
        """
        other = next((name for name in ("query", "target") if name in self._pair), None)
        if other:
            sizes = [np.diff(offsets) for offsets in self._pair[other].offsets]
            queries = np.concatenate([np.zeros(0, np.int32), *sizes])
            return np.stack([self.lengths, queries], axis=1)
        if not self.nested:
            return self.lengths
        parts = [np.zeros((0, 2), np.int32)]
        for offsets, sizes in zip(self._sentences.offsets, self._sentences.values, strict=True):
            longest = np.maximum.reduceat(sizes[: offsets[-1]], offsets[:-1])  # no text is empty
            parts.append(np.stack([np.diff(offsets), longest], axis=1))
        return np.concatenate(parts)

    def __getitem__(self, positions: int | Sequence[int]) -> TextBatch:
        """The batch of these positions; -1 - p is a sampler's repeat of text p, with index -1."""
        requested = np.atleast_1d(np.asarray(positions, np.int64))
        repeated = requested < 0
        rows = np.where(repeated, -1 - requested, requested)
        listed, lengths = rows.tolist(), self.lengths[rows]
        if self.nested or self.whole_words:
            words = self._encoder.word_boundaries if self.whole_words else None
            sizes = [
                self._sentences[row] if words is None else words.sizes(self._tokens[row])
                for row in listed
            ]
            counts = np.fromiter(map(len, sizes), np.int64, len(sizes))
            lengths = pad_ragged(np.concatenate(sizes), counts).numpy()
        batch = collate(
            np.where(repeated, -1, self.index[rows]),
            lengths,
            np.concatenate([self._tokens[row] for row in listed]),
            None if self.labels is None else self.labels[rows],
            {
                name: np.concatenate([column[row] for row in listed])
                for name, column in self._extras.items()
            },
        )
        if self._has_token_labels:
            batch.labels = batch.extras.pop(TAGS).long().masked_fill(~batch.mask, IGNORED)
        pair = {name: [column[row] for row in listed] for name, column in self._pair.items()}
        if "query" in pair:
            batch = with_queries(batch, pair["query"])
        if "allowed" in pair:
            batch = allow_classes(batch, pair["allowed"], len(self._encoder.classes))
        if "target" in pair:
            batch = with_targets(batch, pair["target"], pair.get("links"))
        return batch

    def sentences(self, position: int) -> list[list[int]]:
        """Ids of each sentence of a text, of all of it if not split, or of passage and query."""
        ids = self._tokens[position].tolist()
        if self.paired:
            return [ids, self._pair["query"][position].tolist()]
        if "sentences" not in self.table.column_names:
            return [ids]
        stops = np.cumsum(self._sentences[position]).tolist()
        return [ids[start:stop] for start, stop in pairwise([0, *stops])]

    def words(self, position: int) -> list[str]:
        """Surface form of each id, or whole word, of a text: as in the source if that is stored."""
        return self.surface(position).forms

    def surface(self, position: int) -> Surface:
        """Surface of the ids, or whole words, of a text."""
        names, ids = self.table.column_names, self._tokens[position].tolist()
        tokenizer = self._encoder.parsed_tokenizer
        # Each word is one token, unless the tokenizer is a pretrained model's.
        if self._has_token_labels and type(tokenizer.model).__name__ == "WordLevel":
            words: list[str] = self.table["words"][position].as_py()
            before, stops = len(ids) - len(words), accumulate(len(word) + 1 for word in words)
            spans = [(x - len(word) - 1, x - 1) for word, x in zip(words, stops, strict=True)]
            forms = [SPECIAL_TOKENS[BOS]] * before + words
            return Surface(" ".join(words), [(0, 0)] * before + spans, forms)
        parts: list[tuple[str | tuple[str, str], int | None]] = []
        if "words" in names:
            parts = [(" ".join(self.table["words"][position].as_py()), None)]
        elif "text" in names:
            text = self.table["text"][position].as_py()
            if SEGMENT in self.extras:
                parts = [((text, self.table["query_text"][position].as_py()), None)]
            elif isinstance(text, str):
                parts = [(text, None)]
            else:
                parts = list(zip(text, self._sentences[position].tolist(), strict=True))
        sizes = self._encoder.word_boundaries.sizes(ids).tolist() if self.whole_words else None
        return surface_of(tokenizer, ids, parts, sizes)

    def query_words(self, position: int) -> list[str]:
        """Surface form of each id of the query of a text."""
        query = self.table["query_text"][position].as_py()
        ids = self._pair["query"][position].tolist()
        return surface_of(self._encoder.parsed_tokenizer, ids, [(query, None)]).forms

    @cached_property
    def _encoder(self) -> RawText:
        files = (self.folder.parent / f"{name}.json" for name in ("tokenizer", "corpus"))
        tokenizer, corpus = (file.read_text(encoding="utf-8") for file in files)
        return RawText(tokenizer, json.loads(corpus)["classes"])


def rewrite_split(
    folder: Path,
    change: Callable[[TokenDataset, range], Mapping[str, Any]],
    kinds: Mapping[str, pyarrow.DataType] | None = None,
) -> None:
    """Replace or add columns of a split of a prepared corpus; raises as `split_writer`.

    `change` returns the columns of texts at some places, `kinds` are the types of those it adds.
    """
    texts, new = TokenDataset(folder), folder.with_name("rewritten")
    stored = {field.name: field.type for field in texts.table.schema}
    with split_writer(new, {**stored, **(kinds or {})}) as write:
        for start in range(0, len(texts), READ_ROWS):
            rows: pyarrow.Table = texts.table.slice(start, READ_ROWS)
            changed = change(texts, range(start, start + len(rows)))
            write({name: rows[name] for name in rows.column_names} | dict(changed))
    rmtree(folder)
    new.rename(folder)
