"""Softmax and entropy over the items that attention may reach."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the items of the mask; exactly 0 elsewhere.

    A row with nothing in its mask is all zeros. Scores off the mask may be anything, NaN and
    infinities included: neither they nor their gradients reach the result.

    Args:
        scores: (B, N), or (B, ..., N) such as (B, H, N) for H heads.
        mask: What may be attended to, (B, N) bool, or the shape of `scores`.

    Returns:
        Weights in the shape of `scores`; each row sums to 1 or is all zeros.

    Example:
        >>> masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    # With dimensions of 1 after the first, so that (B, N) broadcasts to (B, ..., N).
    shape = mask.shape[:1] + (1,) * (scores.ndim - mask.ndim) + mask.shape[1:]
    off = ~mask.reshape(shape)
    # The lowest finite number, not -inf: a fully masked row must not become NaN, nor its gradient.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(off, lowest), dim=-1).masked_fill(off, 0.0)


def attention_entropy(weights: Tensor) -> Tensor:
    """Entropy of each attention distribution in nats, 0 log 0 = 0.

    Its gradient is finite at weights of 0 too, so that it can be a penalty.

    Args:
        weights: (..., N), each row summing to 1.

    Returns:
        (...), from 0 to log N.
    """
    positive = weights.clamp(min=torch.finfo(weights.dtype).tiny)
    return -(weights * positive.log()).sum(-1)
