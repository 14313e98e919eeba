"""Which scores are ties: rounding must not order what a model cannot tell apart.

A context-free encoder gives equal words equal scores, up to rounding that differs with the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.sorting import unstable_argsort

# Of the largest absolute score of an instance.
TIE = 1e-5


def dense_ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """Ranks from 0, ascending, in which scores that nearly agree are equal.

    Sorted scores are of one rank as long as each is within 1e-5 of the instance's largest absolute
    score of the one before it.

    Args:
        scores: (B, N); a row with a NaN in its mask is all tied.
        mask: The items to rank, (B, N) bool.

    Returns:
        (B, N) long, -1 off the mask.
    """
    scores = scores.double()
    largest = scores.abs().masked_fill(~mask, 0.0).amax(-1, keepdim=True)
    scores = scores.masked_fill(~mask, torch.inf)
    order = unstable_argsort(scores)
    ordered = scores.gather(-1, order)
    apart = ordered.diff(dim=-1) > TIE * largest
    ranks = torch.zeros_like(order).scatter_(-1, order[:, 1:], apart.long().cumsum(-1))
    return ranks.masked_fill(~mask, -1)
