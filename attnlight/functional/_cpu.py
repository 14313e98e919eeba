"""Sorting, row-wise maxima, hyperbolic tangents and reusable buffers for CPU tensors."""

import math
import threading
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Budget(NamedTuple):
    """How much is computed at once: on a CPU what its caches hold, on an accelerator what fills it."""

    cpu: int
    accelerator: int

    def of(self, tensor: Tensor) -> int:
        """The budget of the device of a tensor."""
        return self.cpu if tensor.is_cpu else self.accelerator


def sorted_keys(keys: Tensor) -> Tensor:
    """Keys in ascending order along the last dimension, possibly sorted in place."""
    if not keys.is_cpu or keys.dtype == torch.bfloat16:  # NumPy has no bfloat16
        return keys.sort(-1).values
    # NumPy's sort is vectorised (AVX2, AVX-512): about ten times as fast as torch's.
    keys.numpy().sort(axis=-1)
    return keys


def best_of_each(rows: Tensor, values: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """The best entry of each row that improves on the best so far, and the updated best values.

    Args:
        rows: Row of each entry, (E,) long, in any order.
        values: (E,).
        best: Best value so far of each row, (R,).

    Returns:
        Places (U,) of the improving entries, of equal ones the first; and the best values, (R,).
    """
    top = best.scatter_reduce(0, rows, values, "amax")
    places = ((values == top[rows]) & (values > best[rows])).nonzero().squeeze(-1)
    _, member = torch.unique(rows[places], return_inverse=True)
    numbers = torch.arange(len(places), device=rows.device)
    first = torch.full_like(numbers, len(places)).scatter_reduce(0, member, numbers, "amin")
    return places[first[member] == numbers], top


class Scratch(threading.local):
    """Reusable buffers by name, separate for each thread.

    A tensor from `take` is overwritten by the next one of that name.
    """

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """An uninitialised tensor in the buffer of that name."""
        count = math.prod(shape)
        buffers: dict[str, Tensor] = vars(self)  # separate for each thread
        buffer = buffers.get(name)
        if (
            buffer is None
            or (buffer.dtype, buffer.device) != (dtype, device)
            or len(buffer) < count
        ):
            buffers.pop(name, None)  # before the allocation, to free its memory
            # A tensor made in inference mode could not be written outside it.
            with torch.inference_mode(False):
                buffer = buffers[name] = torch.empty(count, dtype=dtype, device=device)
        return buffer[:count].view(shape)


def blocks(lengths: list[int], budget: int, times: float = math.inf) -> Iterator[slice]:
    """Split ascending lengths into blocks with padded sizes up to the budget, at least one each.

    No length is more than so many `times` the first of its block.
    """
    start = 0
    for place, length in enumerate(lengths):
        large = (place + 1 - start) * length > budget or length > times * lengths[start]
        if place > start and large:
            yield slice(start, place)
            start = place
    if lengths:
        yield slice(start, len(lengths))
