"""From ragged columns to a padded batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import TextBatch


def pad_ragged(flat: NDArray[np.generic], lengths: NDArray[np.integer]) -> Tensor:
    """Rows of `flat` (sum of lengths,), one after the other, as (B, N) with 0 behind each.

    N is the longest of `lengths` (B,); the values keep their type.

    Example:
        >>> pad_ragged(np.array([1, 2, 3]), np.array([2, 1]))
        tensor([[1, 2],
                [3, 0]])
    """
    padded = np.zeros((len(lengths), lengths.max(initial=0)), flat.dtype)
    padded[_real(lengths)] = flat
    return torch.from_numpy(padded)


def collate(
    index: NDArray[np.int64],
    lengths: NDArray[np.integer],
    tokens: NDArray[np.integer],
    labels: NDArray[np.int64] | None = None,
    extras: Mapping[str, NDArray[np.generic]] | None = None,
) -> TextBatch:
    """A batch padded to its longest text.

    Args:
        index: Dataset row of each text, (B,).
        lengths: Ids of each text, (B,).
        tokens: The ids of all texts, one text after the other, (sum of lengths,).
        labels: Classes (B,), or None.
        extras: Columns that run along the tokens, each (sum of lengths,); they keep their type.
    """
    return TextBatch(
        index=torch.from_numpy(index),
        tokens=pad_ragged(tokens.astype(np.int64, copy=False), lengths),
        mask=torch.from_numpy(_real(lengths)),
        labels=None if labels is None else torch.from_numpy(labels),
        extras={name: pad_ragged(column, lengths) for name, column in (extras or {}).items()},
    )


def _real(lengths: NDArray[np.integer]) -> NDArray[np.bool_]:
    real: NDArray[np.bool_] = np.arange(lengths.max(initial=0)) < lengths[:, None]
    return real
