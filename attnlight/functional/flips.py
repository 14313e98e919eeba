"""How many items must be erased before the decision changes: under a ranking, and at the least.

The decision is the class of the highest logit, ties going to the lower class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.erasure import ranked, remaining, settle, weigh


def first_flip(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor, order: Tensor
) -> Tensor:
    """Number of items of a ranking that are erased when the decision first changes.

    Serrano and Smith (2019), section 5. What is left is renormalised; when nothing is left the
    logits are `bias`.

    Args:
        weights: (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.
        order: Items from the first to be erased to the last, then padding, (B, N) long.

    Returns:
        (B,) long, from 1; -1 if the decision never changes.
    """
    terms = weigh(weights, item_logits, mask)
    return _first_change(terms, order, bias, _decision(terms, bias))


def minimal_flip_set(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The fewest items whose erasure changes the decision, among those with weight above 0.

    With one head it is exact. Erasing item i lowers the lead of the decision y over a class c by
    `w_i (z_iy - z_ic)`, and renormalising does not change its sign, so that no k items leave class c
    better off than the k of the largest such terms; the best c gives the minimum.

    With several heads, each renormalised by itself, that argument fails: the same greedy orders, by
    terms summed over heads, give a set that does change the decision, an upper bound on the fewest.

    Args:
        weights: (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.

    Returns:
        Size (B,) long, -1 if no erasure changes the decision, and members (B, N) bool.
    """
    terms = weigh(weights, item_logits, mask)
    decision = _decision(terms, bias)
    support = (terms[..., -1] > 0).any(1)
    totals = terms[..., :-1].sum(1)
    batch, items, classes = totals.shape
    size = decision.new_full((batch,), items + 1)
    members = torch.zeros_like(support)
    for step in range(1, classes):
        lead = _of_class(totals, decision) - _of_class(totals, (decision + step) % classes)
        order = lead.masked_fill(~support, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        count = _first_change(terms, order, bias, decision)
        fewer = (count > 0) & (count < size)
        size = torch.where(fewer, count, size)
        members[fewer] = (order.argsort(-1) < count[:, None])[fewer]
    return size.masked_fill(size > items, -1), members


def _of_class(totals: Tensor, classes: Tensor) -> Tensor:
    """What items (B, N, C) give to one class (B,) of each row, (B, N)."""
    return totals.gather(2, classes[:, None, None].expand(-1, totals.shape[1], 1)).squeeze(2)


def _decision(terms: Tensor, bias: Tensor) -> Tensor:
    """The decision (B,) before anything is erased, the same whatever order is erased next."""
    return _decisions(terms.cumsum(2)[:, :, -1:], bias).squeeze(1)


def _decisions(sums: Tensor, bias: Tensor) -> Tensor:
    """Decisions (B, K) from the sums (B, H, K, C + 1) over what is left."""
    if sums.shape[1] > 1:
        return settle(sums, bias).argmax(-1)
    # Undivided: a quotient's rounding could make a tie of a lead.
    empty = bias.double().expand(len(sums), -1).unsqueeze(1)
    return torch.where(sums[:, 0, :, -1:] > 0, sums[:, 0, :, :-1], empty).argmax(-1)


def _first_change(terms: Tensor, order: Tensor, bias: Tensor, decision: Tensor) -> Tensor:
    """Number of items (B,) erased when the decision first differs from `decision`, or -1."""
    changed = _decisions(remaining(ranked(terms, order)), bias) != decision[:, None]
    first = changed.byte().argmax(-1) + 1
    return first.masked_fill(~changed.any(-1), -1)
