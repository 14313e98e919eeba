"""Alignment of a text with an edit of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.functional.ranking import lower_and_tied


class Alignment(NamedTuple):
    """Two sequences divided into the same blocks, in order.

    Attributes:
        first: Block of each element of the first sequence.
        second: Block of each element of the second one.
        edited: Whether each block is an edit: elements that one sequence has in place of those of the
            other, of which one may have none. Any other block is an element of both.
    """

    first: list[int]
    second: list[int]
    edited: list[bool]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """The alignment by the longest common runs of elements (`difflib.SequenceMatcher`).

    A moved element is deleted at one place and inserted at another.

    Example:
        >>> align(["a", "bad", "film"], ["a", "very", "good", "film"])
        Alignment(first=[0, 1, 2], second=[0, 1, 1, 2], edited=[False, True, False])
    """
    found = Alignment([], [], [])
    for kind, i, j, k, m in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        block, equal = len(found.edited), kind == "equal"
        found.edited.extend([False] * (j - i) if equal else [True])
        found.first.extend(block + place * equal for place in range(j - i))
        found.second.extend(block + place * equal for place in range(m - k))
    return found


def move_weights(weights: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Attention moved along an alignment, (P, H, M) float64, renormalised.

    An item of the target gets the mass of its block in the source, divided evenly among the block's
    items; the mass of blocks without items of the target is lost.

    Args:
        weights: Attention of the source, (P, H, N).
        source: Block of each item of the source, (P, N) long, -1 off its mask.
        target: Block of each item of the target, (P, M) long, -1 off its mask.

    Returns:
        The weights; NaN for a head whose mass is lost.
    """
    count = int(max(source.max(), target.max())) + 2  # one for items off the mask
    blocks = source.unsqueeze(1).expand(weights.shape) + 1
    mass = weights.new_zeros(*weights.shape[:2], count, dtype=torch.float64)
    mass.scatter_add_(-1, blocks, weights.double())
    sizes = mass.new_zeros(len(target), count)
    sizes.scatter_add_(-1, target + 1, torch.ones_like(target, dtype=torch.float64))
    share = (mass / sizes.clamp(min=1).unsqueeze(1)).masked_fill(sizes.unsqueeze(1) == 0, 0.0)
    share[..., 0] = 0.0
    moved = share.gather(-1, target.unsqueeze(1).expand(-1, weights.shape[1], -1) + 1)
    return moved / moved.sum(-1, keepdim=True)


def rank_of_marked(scores: Tensor, marked: Tensor, mask: Tensor) -> Tensor:
    """Share of the other items that rank above a marked one, mean over marked items, (B,) float64.

    Tied items count half, so that a random order has 0.5 in expectation; 0 if all marked items are
    first. It is one less the area under the ROC curve. NaN where all or no items are marked.

    Args:
        scores: (B, N); ties are those of `dense_ranks`.
        marked: (B, N) bool, False off the mask.
        mask: The items, (B, N) bool.
    """
    below, tied = lower_and_tied(scores, mask)
    count, items = marked.sum(-1).double(), mask.sum(-1).double()
    ranks = ((below + (tied + 1) / 2) * marked).sum(-1)
    above = ranks - count * (count + 1) / 2  # pairs in which a marked item is above another one
    return 1 - above / (count * (items - count))
