"""Heads taken one by one, the others held as they are: each head of a row becomes a row.

Item logits then have the other heads' logits added, which is exact; where the readout is not affine
the other heads' attention is read along.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnlight.functional.candidates import Readout


def own_attention(weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with heads as rows, and what it may reach.

    Args:
        weights: (B, N), or (B, H, N).
        mask: What attention may reach, (B, N) bool.

    Returns:
        Weights (R, N) float64, 0 off the mask and otherwise summing to 1, R = B H, and the mask of
        each, (R, N).
    """
    wide = weights if weights.ndim == 3 else weights.unsqueeze(1)
    reach = mask.unsqueeze(1).expand(wide.shape)
    own = wide.detach().double().masked_fill(~reach, 0.0)
    own = own / own.sum(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
    return own.flatten(0, 1), reach.flatten(0, 1)


def own_items(own: Tensor, item_logits: Tensor, reach: Tensor) -> Tensor:
    """Item logits with heads as rows, those of the other heads read and added.

    Args:
        own: Weights as `own_attention` gives them, (R, N).
        item_logits: (B, N, C), or (B, H, N, C).
        reach: As `own_attention` gives it, (R, N).

    Returns:
        (R, N, C) float64, 0 off the mask.
    """
    single = item_logits.ndim == 3
    items = (item_logits if single else item_logits.flatten(0, 1)).detach().double()
    items = items.masked_fill(~reach.unsqueeze(-1), 0.0)
    if single or item_logits.shape[1] == 1:
        return items
    logits = (own.unsqueeze(-1) * items).sum(1).reshape(*item_logits.shape[:2], -1)
    others = logits.sum(1, keepdim=True) - logits
    folded: Tensor = items + others.flatten(0, 1).unsqueeze(1)
    return folded


def head_readout(readout: Readout, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """A readout of attentions of each head alone, beside the model's own in the others.

    Args:
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        weights: The model's attention (B, N), or (B, H, N).

    Returns:
        From attentions (R, K, N), R = B H, to logits (R, K, C) float64.
    """
    held = (weights if weights.ndim == 3 else weights.unsqueeze(1)).detach()
    heads = held.shape[1]
    changed = torch.eye(heads, dtype=torch.bool, device=held.device)[:, :, None, None]

    def read(attentions: Tensor) -> Tensor:
        count, items = attentions.shape[1:]
        blocks = attentions.to(held.dtype).reshape(-1, 1, heads, count, items)
        wide = torch.where(changed, blocks, held[:, :, None, None])  # (B, H, H, K, N)
        logits = readout(wide.flatten(2, 3)).double()
        return logits.reshape(len(attentions), count, -1)

    return read
