"""Pad ragged columns to a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.targets import IGNORED

Ids = Sequence[int] | NDArray[np.integer]


def pad_ragged(flat: NDArray[np.generic], lengths: NDArray[np.integer]) -> Tensor:
    """Split `flat` (sum of lengths,) into rows and pad them with 0 at the end.

    Args:
        flat: The values; their type is preserved.
        lengths: Values of each row, (B,), or (B, S) for rows of rows; 0 pads (B, S).

    Returns:
        (B, N) or (B, S, N), where N is the longest of `lengths`.

    Example:
        >>> pad_ragged(np.array([1, 2, 3]), np.array([2, 1]))
        tensor([[1, 2],
                [3, 0]])
    """
    real = np.arange(lengths.max(initial=0)) < lengths[..., None]
    padded = np.zeros(real.shape, flat.dtype)
    padded[real] = flat
    return torch.from_numpy(padded)


def collate(
    index: NDArray[np.int64],
    lengths: NDArray[np.integer],
    tokens: NDArray[np.integer],
    labels: NDArray[np.int64] | None = None,
    extras: Mapping[str, NDArray[np.generic]] | None = None,
) -> TextBatch:
    """A batch padded to its longest text, or to its most sentences and its longest sentence.

    Args:
        index: Dataset row of each text, (B,).
        lengths: Ids of each text, (B,), or of each of its sentences, (B, S), padded with 0.
        tokens: The concatenated ids of all texts, (sum of lengths,).
        labels: Classes (B,), or None.
        extras: Columns aligned with the tokens, each (sum of lengths,); types are preserved.
    """
    return TextBatch(
        index=torch.from_numpy(index),
        tokens=pad_ragged(tokens.astype(np.int64, copy=False), lengths),
        mask=torch.from_numpy(np.arange(lengths.max(initial=0)) < lengths[..., None]),
        labels=None if labels is None else torch.from_numpy(labels),
        extras={name: pad_ragged(column, lengths) for name, column in (extras or {}).items()},
    )


def collate_ids(ids: Sequence[Ids], sizes: Sequence[Ids] | None = None) -> TextBatch:
    """A batch of texts that belong to no corpus, with index 0 to B - 1, from the ids of each.

    `sizes` are the numbers of ids of the sentences of each text; None: texts are not split.
    """
    flat, lengths = _flat(ids)
    if sizes is not None:
        lengths = pad_ragged(*_flat(sizes)).numpy()
    return collate(np.arange(len(ids)), lengths, flat)


def _flat(rows: Sequence[Ids]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The concatenated values of rows, and the length of each."""
    return np.fromiter(chain.from_iterable(rows), np.int64), np.fromiter(map(len, rows), np.int64)


def with_queries(batch: TextBatch, queries: Sequence[Ids]) -> TextBatch:
    """The batch of B passages with its `query` and `query_mask`, (B, M), from ids of each query."""
    padded = collate_ids(queries)
    return replace(batch, query=padded.tokens, query_mask=padded.mask)


def allow_classes(batch: TextBatch, allowed: Sequence[Ids], classes: int) -> TextBatch:
    """The batch with its `allowed_classes`, (B, C), from the numbers of those allowed in each text."""
    (flat, lengths), marks = _flat(allowed), np.zeros((len(allowed), classes), np.bool_)
    marks[np.repeat(np.arange(len(allowed)), lengths), flat] = True
    return replace(batch, allowed_classes=torch.from_numpy(marks))


def with_targets(
    batch: TextBatch, targets: Sequence[Ids], links: Sequence[Ids] | None = None
) -> TextBatch:
    """The batch with its `target` (B, T), from the classes of each, and its `links` (B, T, N).

    The links of a text are triples, one after the other: target token, source token, and 1 or 2.
    """
    flat, lengths = _flat(targets)
    target = pad_ragged(flat, lengths)
    target[torch.arange(target.shape[1]) >= torch.from_numpy(lengths)[:, None]] = IGNORED
    if links is None:
        return replace(batch, target=target)
    flat, lengths = _flat(links)
    triples = torch.from_numpy(flat).view(-1, 3)
    text = torch.from_numpy(np.repeat(np.arange(len(links)), lengths // 3))
    dense = torch.zeros(*target.shape, batch.tokens.shape[1], dtype=torch.int8)
    dense[text, triples[:, 0], triples[:, 1]] = triples[:, 2].to(torch.int8)
    return replace(batch, target=target, links=dense)
