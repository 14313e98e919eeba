"""Random draws that depend on what is drawn for, never on batches, padding or devices.

Every number is a node of a tree of splitmix64 generators (Steele, Lea and Flood, 2014): the seed's
stream has a child for each dataset index, that one for each position, that one for each draw, and
that one for each item. The arithmetic is that of wrapping 64-bit integers and the same everywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.functional.scratch import Scratch
from attnlight.functional.shuffling import sorted_by_keys


def _signed(value: int) -> int:
    """The int64 that has the bits of `value` modulo 2^64."""
    return (value + 2**63) % 2**64 - 2**63


_GAMMA = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


_STEPS = ((30, _FIRST), (27, _SECOND), (31, 1))
# Numbers that a CPU mixes at once: what its second cache holds beside what they become.
_CACHED = 1 << 16


def _child(state: Tensor | int, number: Tensor) -> Tensor:
    """Output `number` (from 0) of the splitmix64 generator that starts at `state`."""
    bits = (number + 1) * _GAMMA + state
    for by, factor in _STEPS:
        # torch's shift copies the sign.
        bits = (bits ^ ((bits >> by) & ((1 << (64 - by)) - 1))) * factor
    return bits


def _children(states: Tensor, count: int, scratch: Scratch) -> Tensor:
    """The first outputs (R, K, M) of the generators that start at states (R, K).

    On a CPU by numpy, whose product of such numbers takes half as long as torch's, and whose shift
    knows numbers without a sign.
    """
    numbers = torch.arange(count, device=states.device)
    if states.device.type != "cpu":
        return _child(states[:, :, None], numbers)
    found = scratch.take("bits", (*states.shape, count), states.dtype, states.device)
    steps = _unsigned((numbers + 1) * _GAMMA)
    rows = max(1, _CACHED // max(1, found[:1].numel()))
    for state, bits in zip(torch.split(states, rows), torch.split(found, rows), strict=True):
        _mix(_unsigned(state)[:, :, None] + steps, _unsigned(bits))
    return found


def _mix(bits: NDArray[np.uint64], into: NDArray[np.uint64]) -> None:
    """The generator's output for its states; these are overwritten."""
    for by, factor in _STEPS:
        np.right_shift(bits, np.uint64(by), out=into)
        if factor == 1:
            np.bitwise_xor(bits, into, out=into)
        else:
            np.bitwise_xor(bits, into, out=bits)
            np.multiply(bits, np.uint64(factor % 2**64), out=bits)


def _unsigned(numbers: Tensor) -> NDArray[np.uint64]:
    """The same memory."""
    return numbers.numpy().view(np.uint64)


def draw_states(seed: int, index: Tensor, position: Tensor, draws: int) -> Tensor:
    """State of the generator of each draw of each row, (R, K); arguments as for `draw_keys`."""
    row = _child(_child(_signed(seed), index), position)
    return _child(row[:, None], torch.arange(draws, device=index.device))


def draw_keys(seed: int, index: Tensor, position: Tensor, draws: int, length: int) -> Tensor:
    """Uniform 64-bit random numbers, one for each draw and item of each row.

    Each is a function of its seed, index, position, draw number and item ordinal alone.

    Args:
        seed: Any integer, taken modulo 2^64.
        index: Dataset index of each row, (R,) long.
        position: Position within the text of each row (0 for classifiers), (R,) long.
        draws: Number of draws K.
        length: Number of items N; more items change none of the numbers of the first ones.

    Returns:
        (R, K, N) int64.
    """
    states = draw_states(seed, index, position, draws)
    return _child(states[:, :, None], torch.arange(length, device=index.device))


def permutations(lengths: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """Uniform random permutations of the first items of each row; the others stay in place.

    Items are sorted by random keys of 31 bits, two from each number of `draw_keys`; equal keys, a
    chance of 2^-31 for a pair of items, keep their order.

    Args:
        lengths: Number of items of each row, (R,) long.
        rows: Dataset index and position of each row, (R, 2) long.
        draws: Number of permutations K.
        seed: Any integer.

    Returns:
        (R, K, N) long with N the largest length: item `[r, k, i]` comes to place i.
    """
    return shuffles(lengths, draw_states(seed, rows[:, 0], rows[:, 1], draws)).long()


def shuffles(lengths: Tensor, states: Tensor, scratch: Scratch | None = None) -> Tensor:
    """`permutations` of rows whose `draw_states` (R, K) are known, in memory of `scratch`.

    They are int32 where that is less work.
    """
    scratch = scratch or Scratch()
    longest = int(lengths.max())
    numbers = _children(states, (longest + 1) // 2, scratch)
    return sorted_by_keys(numbers.view(torch.int32)[..., :longest], lengths, scratch)
