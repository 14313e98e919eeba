"""One split of a prepared corpus, read by memory map."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from attnlight.batch import TextBatch
from attnlight.data.collate import collate

if TYPE_CHECKING:
    import pyarrow
    from tokenizers import Tokenizer

COLUMNS = ("index", "label", "length", "tokens", "text", "words")


class _RaggedColumn:
    """A list column as views of the memory map: per stored chunk its offsets and its values."""

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
    """Texts of one split; `dataset[[3, 1, 4]]` is a batch.

    Memory beside the map is 20 bytes a text: `index`, `label` and `length` as arrays.

    Args:
        folder: The split's folder in a prepared corpus (`CorpusDataModule`).

    Attributes:
        index: Row of each text in its source, before filtering, (n,) int64.
        lengths: Ids of each text, (n,) int32.
        labels: Class of each text, (n,) int64, or None where the split has none.
        extras: Names of the columns that run along the tokens.
    """

    def __init__(self, folder: str | Path) -> None:
        import datasets

        self.folder = Path(folder)
        rows = datasets.load_from_disk(str(folder), keep_in_memory=False)
        self._table: pyarrow.Table = rows.data.table
        names = self._table.column_names
        self.index = self._numbers("index", np.int64)
        self.lengths = self._numbers("length", np.int32)
        self.labels = self._numbers("label", np.int64) if "label" in names else None
        self.extras = [name for name in names if name not in COLUMNS]
        self._tokens = _RaggedColumn(self._table["tokens"])
        self._extras = {name: _RaggedColumn(self._table[name]) for name in self.extras}

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker opens the map itself instead of receiving the corpus.
        return TokenDataset, (self.folder,)

    def _numbers(self, name: str, dtype: type[np.integer]) -> NDArray[Any]:
        numbers: NDArray[Any] = self._table[name].to_numpy()
        return numbers.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, positions: int | Sequence[int]) -> TextBatch:
        """The batch of these positions; -1 - p stands for p as a repeat, whose index is -1."""
        asked = np.atleast_1d(np.asarray(positions, np.int64))
        rows = np.where(asked < 0, -1 - asked, asked)
        listed = rows.tolist()
        return collate(
            np.where(asked < 0, -1, self.index[rows]),
            self.lengths[rows],
            np.concatenate([self._tokens[row] for row in listed]),
            None if self.labels is None else self.labels[rows],
            {
                name: np.concatenate([column[row] for row in listed])
                for name, column in self._extras.items()
            },
        )

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder.parent / "tokenizer.json"))

    def words(self, position: int) -> list[str]:
        """Surface form of each id of a text: as in its source where that is kept, (length,)."""
        ids = self._tokens[position].tolist()
        forms = [str(self._tokenizer.id_to_token(number)) for number in ids]
        source = self._source(position)
        if source is None:
            return forms
        encoding = self._tokenizer.encode(source)
        if encoding.ids != ids:  # an empty text, kept as one unknown token
            return forms
        spans = zip(encoding.offsets, forms, strict=True)
        return [source[start:stop] or form for (start, stop), form in spans]

    def _source(self, position: int) -> str | None:
        if "text" in self._table.column_names:
            return str(self._table["text"][position].as_py())
        if "words" in self._table.column_names:
            return " ".join(self._table["words"][position].as_py())
        return None
