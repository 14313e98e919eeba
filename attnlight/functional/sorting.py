"""Sorting along the last dimension; on a CPU numpy's, which is vectorised (AVX2, AVX-512)."""

from __future__ import annotations

import torch
from torch import Tensor


def sorted_keys(keys: Tensor) -> Tensor:
    """Keys in ascending order, perhaps in place."""
    if keys.device.type != "cpu":
        return keys.sort(-1).values
    # About ten times as fast as torch's.
    keys.numpy().sort(axis=-1)
    return keys


def unstable_argsort(values: Tensor) -> Tensor:
    """Places of the values in ascending order, NaN last, equal values in any order."""
    if values.device.type != "cpu":
        return values.argsort(-1)
    # About four times as fast as torch's.
    return torch.from_numpy(values.detach().numpy().argsort(axis=-1))


def first_of_each(rows: Tensor) -> Tensor:
    """Places (U,) of the first entry of each row among rows (E,) long: what may be written by row."""
    numbers = torch.arange(len(rows), device=rows.device)
    _, member = torch.unique(rows, return_inverse=True)
    first = torch.full_like(numbers, len(rows)).scatter_reduce(0, member, numbers, "amin")
    return (first[member] == numbers).nonzero().squeeze(-1)
