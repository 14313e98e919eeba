"""Random draws that depend on what is drawn for, never on batches, padding or devices.

Every number is a node of a tree of splitmix64 generators (Steele, Lea and Flood, 2014): the seed's
stream has a child for each dataset index, that one for each position, that one for each draw, and
that one for each item. The arithmetic is that of wrapping 64-bit integers and the same everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.scratch import Scratch
from attnlight.functional.shuffling import sorted_by_keys


def _signed(value: int) -> int:
    """The int64 that has the bits of `value` modulo 2^64."""
    return (value + 2**63) % 2**64 - 2**63


_GAMMA = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _child(
    state: Tensor | int, number: Tensor, into: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Output `number` (from 0) of the splitmix64 generator that starts at `state`.

    `into` is memory for the output and for as many numbers more.
    """
    steps = (number + 1) * _GAMMA
    if into is None:
        bits = steps + state
        shifted = torch.empty_like(bits)
    else:
        bits, shifted = into
        torch.add(steps, state, out=bits)
    for by, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        torch.bitwise_right_shift(bits, by, out=shifted)
        shifted.bitwise_and_((1 << (64 - by)) - 1)  # torch's shift copies the sign
        bits.bitwise_xor_(shifted)
        if factor != 1:
            bits.mul_(factor)
    return bits


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
    return shuffles(lengths, draw_states(seed, rows[:, 0], rows[:, 1], draws))


def shuffles(lengths: Tensor, states: Tensor, scratch: Scratch | None = None) -> Tensor:
    """`permutations` of rows whose `draw_states` (R, K) are known, in memory of `scratch`."""
    scratch = scratch or Scratch()
    longest = int(lengths.max())
    pairs = torch.arange((longest + 1) // 2, device=states.device)
    like = ((*states.shape, len(pairs)), pairs.dtype, pairs.device)
    into = scratch.take("bits", *like), scratch.take("shifted", *like)
    numbers = _child(states[:, :, None], pairs, into)
    return sorted_by_keys(numbers.view(torch.int32)[..., :longest], lengths, scratch)
