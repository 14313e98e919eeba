"""Random draws that depend on what is drawn for, never on batches, padding or devices.

Every number is a node of a tree of splitmix64 generators (Steele, Lea and Flood, 2014): the seed's
stream has a child for each dataset index, that one for each position, that one for each draw, and
that one for each item. The arithmetic is that of wrapping 64-bit integers and the same everywhere.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attnlight.functional._cpu import Scratch, sorted_keys

# 64-bit constants as the int64 of the same bits.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_STEPS = ((30, _FIRST), (27, _SECOND), (31, 1))
# Numbers that a CPU mixes at once: what its second cache holds beside what they become.
_CACHED = 1 << 16


def _child(state: Tensor | int, number: Tensor, scratch: Scratch | None = None) -> Tensor:
    """Output `number` (from 0) of the splitmix64 generator that starts at `state`.

    On a CPU and in memory of `scratch` by numpy, whose product of such numbers takes half as long as
    torch's, and whose shift knows numbers without a sign; for states (R, K, 1) and numbers (M,).
    """
    steps = (number + 1) * _GAMMA
    if scratch is None or number.device.type != "cpu" or isinstance(state, int):
        bits = steps + state
        for by, factor in _STEPS:
            # torch's shift copies the sign.
            bits = (bits ^ ((bits >> by) & ((1 << (64 - by)) - 1))) * factor
        return bits
    found = scratch.take("bits", (*state.shape[:2], len(number)), state.dtype, state.device)
    rows = max(1, _CACHED // max(1, found[:1].numel()))
    for states, part in zip(torch.split(state, rows), torch.split(found, rows), strict=True):
        into = part.numpy().view(np.uint64)
        mixed = states.numpy().view(np.uint64) + steps.numpy().view(np.uint64)
        for by, factor in _STEPS:
            np.right_shift(mixed, np.uint64(by), out=into)
            if factor == 1:
                np.bitwise_xor(mixed, into, out=into)
            else:
                np.bitwise_xor(mixed, into, out=mixed)
                np.multiply(mixed, np.uint64(factor % 2**64), out=mixed)
    return found


def draw_states(seed: int, index: Tensor, position: Tensor, draws: int) -> Tensor:
    """State of the generator of each draw of each row, (R, K); arguments as for `draw_keys`."""
    row = _child(_child((seed + 2**63) % 2**64 - 2**63, index), position)
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
    ordinals = torch.arange((longest + 1) // 2, device=states.device)
    numbers = _child(states[:, :, None], ordinals, scratch)
    return sorted_by_keys(numbers.view(torch.int32)[..., :longest], lengths, scratch)


# A sorting key: a zero, 31 random bits, and 32 bits for the item's ordinal.
_HIGHEST_KEY, _ORDINAL = 0x7FFFFFFF_00000000, 0xFFFFFFFF
# With more items too many of the short keys would be equal.
_SHORT = 512


def sorted_by_keys(
    bits: Tensor, lengths: Tensor, scratch: Scratch | None = None, short: bool = True
) -> Tensor:
    """Ordinals of each row's first items sorted by their last 31 bits; the others stay in place.

    Items with equal bits keep their order.

    Args:
        bits: (R, K, N) int32.
        lengths: Number of items of each row, (R,) long, at least 1.
        scratch: Memory to use on a CPU, for what is returned too.
        short: Sort by 32 bits on a CPU, where there are not too many items.

    Returns:
        (R, K, N), int32 where that is what they are sorted by, else long.
    """
    items = bits.shape[-1]
    if not short or bits.device.type != "cpu" or items > _SHORT:
        ordinals = torch.arange(items, device=bits.device)
        # Items beyond a row's length get the highest key and so sort last. With the ordinal below it
        # every key is unique, and any sorting algorithm gives the same answer.
        tails = torch.where(ordinals < lengths[:, None, None], ordinals, ordinals | _HIGHEST_KEY)
        keys = bits.to(torch.int64)
        keys.bitwise_left_shift_(32).bitwise_and_(_HIGHEST_KEY).bitwise_or_(tails)
        return sorted_keys(keys).bitwise_and_(_ORDINAL)
    # By 32 bits, the highest of an item's bits above its ordinal: numpy sorts them more than twice as
    # fast. Where two items agree in these bits the others decide.
    scratch = scratch or Scratch()
    ordinal = (1 << (items - 1).bit_length()) - 1
    highest = 0x7FFFFFFF & ~ordinal
    ordinals = torch.arange(items, dtype=torch.int32)
    beyond = ordinals >= lengths[:, None, None]
    keys = scratch.take("keys", bits.shape, bits.dtype, bits.device)
    torch.bitwise_and(bits, highest, out=keys)
    keys = sorted_keys(keys.bitwise_or_(ordinals.where(~beyond, ordinals | highest)))
    if items < 2:
        return keys.bitwise_and_(ordinal)
    # Neighbours that differ in their ordinals only.
    apart = scratch.take("apart", (*bits.shape[:2], items - 1), keys.dtype, keys.device)
    torch.bitwise_xor(keys[..., 1:], keys[..., :-1], out=apart)
    shortest = max(1, items - int(beyond.any(0).sum()))
    apart[..., shortest - 1 :].masked_fill_(beyond[..., shortest:], ordinal + 1)
    alike, order = apart.amin(-1) <= ordinal, keys.bitwise_and_(ordinal)
    if alike.any():
        row, draw = alike.nonzero(as_tuple=True)
        again = sorted_by_keys(bits[row, draw].unsqueeze(1), lengths[row], short=False)
        order[row, draw] = again.squeeze(1).int()
    return order
