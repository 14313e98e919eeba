"""Logits after items are erased and each head's remaining attention is renormalised.

In closed form and in float64: the remaining terms are summed, never subtracted from a total, which
stays accurate where one item has nearly all of the attention. Erasing an item removes it from every
head; a head with no remaining item has a zero context, whose logits are its share of the bias.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def weighted_items(weights: Tensor, item_logits: Tensor, mask: Tensor) -> Tensor:
    """Weighted logits of each item, then its weight, (B, H, N, C + 1) float64, 0 off the mask.

    Arguments are those of `erase_each`.
    """
    if weights.ndim == 2:
        weights, item_logits = weights.unsqueeze(1), item_logits.unsqueeze(1)
    column = weights.double().unsqueeze(-1)
    terms = torch.cat([column * item_logits.double(), column], dim=-1)
    return terms.masked_fill(~mask[:, None, :, None], 0.0)


def renormalize(sums: Tensor, bias: Tensor) -> Tensor:
    """Logits (B, K, C) from sums (B, H, K, C + 1) of `weighted_items` over the remaining items.

    Where none remains they are the head's share of `bias`, (C,) or (B, C).
    """
    batch, heads = sums.shape[:2]
    mass = sums[..., -1:]
    attended = mass > 0
    empty = bias.double().expand(batch, -1)[:, None, None] / heads
    return torch.where(attended, sums[..., :-1] / torch.where(attended, mass, 1.0), empty).sum(1)


def erase_each(weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    """Logits after erasing each item alone and renormalising.

    The single-weight test of Serrano and Smith (2019), section 4, for every item at once.

    Args:
        weights: (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        bias: Logits of an empty context, (C,) or (B, C).
        mask: Items that attention may reach, (B, N) bool.

    Returns:
        (B, N, C) float64; `bias` where no item remains. Off the mask the last item's are repeated.
    """
    terms = weighted_items(weights, item_logits, mask)
    remaining = torch.zeros_like(terms)
    remaining[:, :, 1:] = terms.cumsum(2)[:, :, :-1]
    remaining[:, :, :-1] += terms.flip(2).cumsum(2).flip(2)[:, :, 1:]
    logits = renormalize(remaining, bias)
    places = torch.arange(mask.shape[1], device=mask.device)
    last = mask.long().mul(places).amax(-1, keepdim=True)
    source = torch.where(mask, places, last)
    return logits.gather(1, source.unsqueeze(-1).expand_as(logits))


def erase_ranking(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor, order: Tensor
) -> Tensor:
    """Logits after erasing the first 1, 2, ... items of a ranking and renormalising.

    Arguments are those of `erase_each`, and `order` (B, N) long: the items from the first to be erased
    to the last, then padding.

    Returns:
        (B, N, C) float64; row k is after erasing the first k + 1 items, `bias` from the row on
        where no item remains.
    """
    terms = weighted_items(weights, item_logits, mask)
    terms = terms.gather(2, order[:, None, :, None].expand_as(terms))
    # Sums over the items that follow each, accumulated from the end.
    remaining = pad(terms.flip(2), (0, 0, 1, 0))[:, :, :-1].cumsum(2).flip(2)
    return renormalize(remaining, bias)


def keep_items(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor, kept: Tensor
) -> Tensor:
    """Logits when only the items of a set remain, renormalised, for K sets of each row.

    Arguments are those of `erase_each`, and the sets, `kept` (B, K, N) bool.

    Returns:
        (B, K, C) float64; `bias` where no item remains.
    """
    terms = weighted_items(weights, item_logits, mask)
    return renormalize(kept.double().unsqueeze(1) @ terms, bias)
