"""The last states of a frozen model for the texts of a split, computed once, read by memory map."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.prepared import prepare_once
from attnlight.errors import InputError
from attnlight.functional._cpu import blocks
from attnlight.storage.files import named_errors

_FILE = "states"  # (I, D) little-endian float32: the tokens of all texts, one text after the other
# Texts encoded between writes; they are sorted by length, so that batches need little padding.
_PIECE_TEXTS = 1 << 10
_CPU_TOKENS, _ACCELERATOR_TOKENS = 1 << 11, 1 << 16


class KeptStates:
    """Last states for the texts of one split, a folder beside the prepared corpus for each model."""

    def __init__(self, texts: TokenDataset) -> None:
        self.texts = texts
        self._order = np.argsort(texts.index, kind="stable")
        self._ends = np.cumsum(texts.lengths, dtype=np.int64)
        self._opened: tuple[str, NDArray[np.float32] | None] = "", None

    def __reduce__(self) -> tuple[Any, ...]:  # a copy opens the file, and does not copy the states
        return type(self), (self.texts,)

    def read(
        self, batch: TextBatch, digest: str, size: int, encode: Callable[[TextBatch], Tensor]
    ) -> Tensor | None:
        """States (B, N, D) of texts of the split, float32, 0 on padding; None where one is not in the split.

        A text is found by its index, and is in the split if all its tokens are those of the split.
        On the first call for a model, which has a `digest` and encodes a batch to states of `size` D,
        all texts of the split are encoded, unless that was done before. If they cannot be, or not be
        written, one line on stderr says why.
        """
        index, lengths = batch.index.cpu().numpy(), batch.mask.sum(-1).cpu().numpy()
        ordered = self.texts.index[self._order]
        if not len(ordered):
            return None
        found = np.minimum(np.searchsorted(ordered, index), len(ordered) - 1)
        places = self._order[found]
        known, stored = self.texts.index[places], self.texts.lengths[places]
        if (known != index).any() or (stored != lengths).any():
            return None
        own, width = self.texts[places.tolist()], int(lengths.max(initial=0))
        given = batch.tokens[:, :width].cpu(), batch.mask[:, :width].cpu()
        if not (torch.equal(own.tokens, given[0]) and torch.equal(own.mask, given[1])):
            return None
        kept = self._open(digest, size, encode)
        if kept is None:
            return None
        spans = zip(self._ends[places] - lengths, self._ends[places], strict=True)
        rows = np.concatenate([kept[start:end] for start, end in spans])
        shape, device = (*batch.mask.shape, size), batch.mask.device
        states = torch.zeros(shape, dtype=torch.float32, device=device)
        states[batch.mask] = torch.from_numpy(rows).to(device)
        return states

    def _open(
        self, digest: str, size: int, encode: Callable[[TextBatch], Tensor]
    ) -> NDArray[np.float32] | None:
        """The states of the split by a model, (I, D); None where they cannot be kept."""
        if self._opened[0] != digest:
            corpus, kept = self.texts.folder.parent, None
            folder = corpus.parent / f"states-{digest}-{corpus.name}-{self.texts.folder.name}"
            try:
                prepare_once(folder, partial(self._write, encode))
                shape = (int(self._ends[-1]), size)
                with named_errors(folder):
                    kept = np.asarray(np.memmap(folder / _FILE, "<f4", mode="r", shape=shape))
            except InputError as error:
                print(f"states are computed every time: {error}", file=sys.stderr)
            self._opened = digest, kept
        return self._opened[1]

    def _write(self, encode: Callable[[TextBatch], Tensor], folder: Path) -> None:
        count = len(self.texts)
        budget = _ACCELERATOR_TOKENS if torch.cuda.is_available() else _CPU_TOKENS
        print(f"encoding {count:,} {self.texts.folder.name} texts, once", file=sys.stderr)
        with named_errors(folder), (folder / _FILE).open("wb") as file:
            for start in range(0, count, _PIECE_TEXTS):
                piece = np.arange(start, min(start + _PIECE_TEXTS, count))
                states: dict[int, NDArray[np.float32]] = {}
                ordered = piece[np.argsort(self.texts.lengths[piece], kind="stable")]
                lengths = self.texts.lengths[ordered].tolist()
                for block in blocks(lengths, budget):
                    places = ordered[block].tolist()
                    found = encode(self.texts[places]).float().cpu().numpy()
                    for place, row, length in zip(places, found, lengths[block], strict=True):
                        states[place] = row[:length]
                rows = np.concatenate([states[place] for place in piece.tolist()])
                file.write(np.ascontiguousarray(rows, "<f4").data)
