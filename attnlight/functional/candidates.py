"""Erasure where the readout is not affine: each way to erase is a candidate attention to read.

What `erasure` and `attribution` have in closed form, at the cost of one readout for each item. A
readout is a function of candidate attentions (B, H, K, N) to logits (B, K, C).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Readout = Callable[[Tensor], Tensor]

# Attention weights of the candidates that are read at once: 8 MiB in single precision.
_WEIGHTS = 1 << 21


def read_each(readout: Readout, weights: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    """Logits after erasing each item alone and renormalising.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: (B, H, N).
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.

    Returns:
        (B, N, C) float64; `bias` where nothing is left, the own logits off the mask.
    """
    places = torch.arange(mask.shape[1], device=mask.device)[None, None]
    return _read(readout, weights, bias, mask, lambda steps: places != steps[:, None])


def read_ranking(
    readout: Readout, weights: Tensor, bias: Tensor, mask: Tensor, order: Tensor
) -> Tensor:
    """Logits after erasing the first 1, 2, ... items of a ranking and renormalising.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: (B, H, N).
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.
        order: Items from the first to be erased to the last, then padding, (B, N) long.

    Returns:
        (B, N, C) float64; row k is after erasing the first k + 1 items, `bias` when nothing is left
        and from there on.
    """
    ranks = order.argsort(-1).unsqueeze(1)
    return _read(readout, weights, bias, mask, lambda steps: ranks > steps[:, None])


def readout_gradient(readout: Readout, weights: Tensor, mask: Tensor) -> Tensor:
    """Gradient of the winning class's probability with respect to each attention weight.

    The weights are free after the softmax, as Serrano and Smith (2019) take it. Tensors made in
    inference mode are no part of a graph: `readout` must hold none.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: (B, H, N).
        mask: What attention may reach, (B, N) bool.

    Returns:
        (B, H, N) float64; 0 off the mask.
    """
    with torch.enable_grad():
        free = weights.detach().clone().requires_grad_()
        highest = readout(free.unsqueeze(2)).squeeze(1).double().softmax(-1).amax(-1)
        (gradient,) = torch.autograd.grad(highest.sum(), free)
    return gradient.double().masked_fill(~mask.unsqueeze(1), 0.0)


def _read(
    readout: Readout,
    weights: Tensor,
    bias: Tensor,
    mask: Tensor,
    left: Callable[[Tensor], Tensor],
) -> Tensor:
    """Logits (B, N, C) of what is `left` (B or 1, K, N) bool at each of K of the N steps."""
    batch, items = mask.shape
    own = weights.double().masked_fill(~mask.unsqueeze(1), 0.0).unsqueeze(2)
    size = max(1, _WEIGHTS // max(1, own.numel()))
    found = []
    for steps in torch.split(torch.arange(items, device=mask.device), size):
        kept = own * left(steps).unsqueeze(1)
        mass = kept.sum(-1, keepdim=True)
        candidates = (kept / torch.where(mass > 0, mass, 1.0)).to(weights.dtype)
        logits = readout(candidates).double()
        empty = (mass <= 0).all(1)
        found.append(torch.where(empty, bias.double().expand(batch, -1).unsqueeze(1), logits))
    return torch.cat(found, dim=1)
