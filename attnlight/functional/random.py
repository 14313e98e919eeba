"""Counter-based random draws, independent of batching, padding and device.

Every number is a node of a tree of splitmix64 generators (Steele, Lea and Flood, 2014): the stream
of the seed has a child for each dataset index, which has a child for each position, then for each
draw and for each item. The arithmetic wraps 64-bit integers and gives the same numbers on every
device.
"""

import numpy as np
import torch
from torch import Tensor

from attnlight.functional._cpu import Scratch, sorted_keys

# 64-bit constants as int64 with the same bits.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_STEPS = ((30, _FIRST), (27, _SECOND), (31, 1))
# Numbers mixed at once on a CPU: inputs and outputs fit in the second-level cache.
_CACHED = 1 << 16


def _child(state: Tensor | int, number: Tensor, scratch: Scratch | None = None) -> Tensor:
    """Output `number` (from 0) of the splitmix64 generator that starts at `state`.

    With `scratch`, a CPU uses NumPy, whose 64-bit product takes half as long as torch's and whose
    shift supports unsigned integers; for states (R, K, 1) and numbers (M,).
    """
    steps = (number + 1) * _GAMMA
    if scratch is None or not number.is_cpu or isinstance(state, int):
        bits = steps + state
        for shift, factor in _STEPS:
            # torch's right shift is arithmetic.
            bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
        return bits
    bits = scratch.take("bits", (*state.shape[:2], len(number)), state.dtype, state.device)
    rows = max(1, _CACHED // max(1, bits[:1].numel()))
    for states, part in zip(torch.split(state, rows), torch.split(bits, rows), strict=True):
        shifted = part.numpy().view(np.uint64)
        mixed = states.numpy().view(np.uint64) + steps.numpy().view(np.uint64)
        for shift, factor in _STEPS:
            np.right_shift(mixed, np.uint64(shift), out=shifted)
            if factor == 1:
                np.bitwise_xor(mixed, shifted, out=shifted)
            else:
                np.bitwise_xor(mixed, shifted, out=mixed)
                np.multiply(mixed, np.uint64(factor % 2**64), out=mixed)
    return bits


def draw_states(seed: int, index: Tensor, position: Tensor, draws: int) -> Tensor:
    """State of the generator of each draw of each row, (R, K); arguments as for `draw_keys`."""
    row = _child(_child((seed + 2**63) % 2**64 - 2**63, index), position)
    return _child(row[:, None], torch.arange(draws, device=index.device))


def draw_keys(seed: int, index: Tensor, position: Tensor, draws: int, length: int) -> Tensor:
    """Uniform 64-bit random numbers, one for each draw and item of each row.

    Each is a function of its seed, index, position, draw number and item ordinal only.

    Args:
        seed: Any integer, taken modulo 2^64.
        index: Dataset index of each row, (R,) long.
        position: Position within the text of each row (0 for classifiers), (R,) long.
        draws: Number of draws K.
        length: Number of items N; it does not affect the numbers of the first items.

    Returns:
        (R, K, N) int64.
    """
    states = draw_states(seed, index, position, draws)
    return _child(states[:, :, None], torch.arange(length, device=index.device))


def permutations(lengths: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """Uniform random permutations of the first items of each row; the others stay in place.

    Items are sorted by random keys of 31 bits, two from each number of `draw_keys`; items with
    equal keys, of probability 2^-31 for a pair, keep their order.

    Args:
        lengths: Number of items of each row, (R,) long.
        rows: Dataset index and position of each row, (R, 2) long.
        draws: Number of permutations K.
        seed: Any integer.

    Returns:
        (R, K, N) long with N the largest length: item `[r, k, i]` moves to place i.
    """
    states = draw_states(seed, rows[:, 0], rows[:, 1], draws)
    return shuffles(lengths, states, int(lengths.max())).long()


def shuffles(
    lengths: Tensor, states: Tensor, longest: int, scratch: Scratch | None = None
) -> Tensor:
    """`permutations` from `draw_states` (R, K), of the `longest` length, in buffers of `scratch`.

    Their dtype is int32 where that is faster, else long.
    """
    scratch = scratch or Scratch()
    ordinals = torch.arange((longest + 1) // 2, device=states.device)
    numbers = _child(states[:, :, None], ordinals, scratch)
    return sorted_by_keys(numbers.view(torch.int32)[..., :longest], lengths, scratch)


# A sorting key: a zero bit, 31 random bits, and 32 bits for the item's ordinal.
_HIGHEST_KEY, _ORDINAL = 0x7FFFFFFF_00000000, 0xFFFFFFFF
# With more items too many short keys would collide.
_SHORT = 512


def sorted_by_keys(
    bits: Tensor, lengths: Tensor, scratch: Scratch | None = None, short: bool = True
) -> Tensor:
    """Ordinals of each row's first items sorted by their last 31 bits; others stay in place.

    Items with equal bits keep their order.

    Args:
        bits: (R, K, N) int32.
        lengths: Number of items of each row, (R,) long, at least 1.
        scratch: Buffers to use on a CPU, also for the result.
        short: Sort by 32-bit keys on a CPU, unless there are too many items.

    Returns:
        (R, K, N), int32 if sorted by 32-bit keys, else long.
    """
    items = bits.shape[-1]
    if not short or not bits.is_cpu or items > _SHORT:
        ordinals = torch.arange(items, device=bits.device)
        # Items beyond a row's length get the highest key and so sort last. The ordinal in the low
        # bits makes every key unique, so that the result does not depend on the sorting algorithm.
        tails = torch.where(ordinals < lengths[:, None, None], ordinals, ordinals | _HIGHEST_KEY)
        keys = bits.to(torch.int64)
        keys.bitwise_left_shift_(32).bitwise_and_(_HIGHEST_KEY).bitwise_or_(tails)
        return sorted_keys(keys).bitwise_and_(_ORDINAL)
    # 32-bit keys: the highest of an item's bits above its ordinal, which NumPy sorts more than
    # twice as fast. Rows in which two items collide are sorted again by all bits.
    scratch = scratch or Scratch()
    ordinal = (1 << (items - 1).bit_length()) - 1
    highest = 0x7FFFFFFF & ~ordinal
    ordinals = torch.arange(items, dtype=torch.int32)
    padding = ordinals >= lengths[:, None, None]
    keys = scratch.take("keys", bits.shape, bits.dtype, bits.device)
    torch.bitwise_and(bits, highest, out=keys)
    keys = sorted_keys(keys.bitwise_or_(ordinals.where(~padding, ordinals | highest)))
    if items < 2:
        return keys.bitwise_and_(ordinal)
    # Neighbours that differ only in their ordinals have collided.
    differences = scratch.take("differences", (*bits.shape[:2], items - 1), keys.dtype, keys.device)
    torch.bitwise_xor(keys[..., 1:], keys[..., :-1], out=differences)
    shortest = max(1, items - int(padding.any(0).sum()))
    differences[..., shortest - 1 :].masked_fill_(padding[..., shortest:], ordinal + 1)
    collided, order = differences.amin(-1) <= ordinal, keys.bitwise_and_(ordinal)
    if collided.any():
        row, draw = collided.nonzero(as_tuple=True)
        resolved = sorted_by_keys(bits[row, draw].unsqueeze(1), lengths[row], short=False)
        order[row, draw] = resolved.squeeze(1).int()
    return order
