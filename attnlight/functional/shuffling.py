"""Sorting a row's items by random keys, alike on every device, on a CPU by half as many bits."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.scratch import Scratch
from attnlight.functional.sorting import sorted_keys

# A sorting key: a zero, 31 random bits, and 32 bits for the item's ordinal.
_HIGHEST_KEY, _ORDINAL = 0x7FFFFFFF_00000000, 0xFFFFFFFF
# With more items too many of the short keys would be equal.
_SHORT = 512


def sorted_by_keys(bits: Tensor, lengths: Tensor, scratch: Scratch | None = None) -> Tensor:
    """Ordinals of each row's first items sorted by their last 31 bits; the others stay in place.

    Items with equal bits keep their order.

    Args:
        bits: (R, K, N) int32.
        lengths: Number of items of each row, (R,) long, at least 1.
        scratch: Memory to use on a CPU, for what is returned too.

    Returns:
        (R, K, N), int32 where that is what they are sorted by, else long.
    """
    if bits.device.type == "cpu" and bits.shape[-1] <= _SHORT:
        return _sorted_by_short_keys(bits, lengths, scratch or Scratch())
    return _sorted_by_long_keys(bits, lengths[:, None, None])


def _sorted_by_long_keys(bits: Tensor, lengths: Tensor) -> Tensor:
    """The same, for lengths that broadcast with the bits."""
    ordinals = torch.arange(bits.shape[-1], device=bits.device)
    # Items beyond a row's length get the highest key and so sort last. With the ordinal below it
    # every key is unique, and any sorting algorithm gives the same answer.
    tails = torch.where(ordinals < lengths, ordinals, ordinals | _HIGHEST_KEY)
    keys = bits.to(torch.int64)
    keys.bitwise_left_shift_(32).bitwise_and_(_HIGHEST_KEY).bitwise_or_(tails)
    return sorted_keys(keys).bitwise_and_(_ORDINAL)


def _sorted_by_short_keys(bits: Tensor, lengths: Tensor, scratch: Scratch) -> Tensor:
    """The same by 32 bits: the highest of an item's bits above its ordinal.

    numpy sorts them more than twice as fast. Where two items agree in these bits the others decide.
    """
    items = bits.shape[-1]
    ordinal = (1 << (items - 1).bit_length()) - 1
    highest = 0x7FFFFFFF & ~ordinal
    ordinals = torch.arange(items, dtype=torch.int32)
    beyond = ordinals >= lengths[:, None, None]
    keys = scratch.take("keys", bits.shape, bits.dtype, bits.device)
    torch.bitwise_and(bits, highest, out=keys)
    keys = sorted_keys(keys.bitwise_or_(ordinals.where(~beyond, ordinals | highest)))
    alike = _neighbours_alike(keys, ordinal, beyond, scratch)
    order = keys.bitwise_and_(ordinal)
    if alike.any():
        row, draw = alike.nonzero(as_tuple=True)
        order[row, draw] = _sorted_by_long_keys(bits[row, draw], lengths[row, None]).int()
    return order


def _neighbours_alike(keys: Tensor, ordinal: int, beyond: Tensor, scratch: Scratch) -> Tensor:
    """Whether two of the sorted keys (R, K, N) of a draw differ in their ordinals only, (R, K)."""
    rows, draws, items = keys.shape
    if items < 2:
        return beyond.new_zeros(rows, draws)
    apart = scratch.take("apart", (rows, draws, items - 1), keys.dtype, keys.device)
    torch.bitwise_xor(keys[..., 1:], keys[..., :-1], out=apart)
    shortest = max(1, items - int(beyond.any(0).sum()))
    apart[..., shortest - 1 :].masked_fill_(beyond[..., shortest:], ordinal + 1)
    return apart.amin(-1) <= ordinal
