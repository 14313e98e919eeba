"""How many items must be erased before the decision changes: under a ranking, and at the least.

The decision is the class of the highest logit, ties going to the lower class.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlight.functional.erasure.erase import renormalize, weighted_items

# Terms of the rankings that are followed at once: 32 MiB.
_TERMS = 1 << 22
# A lead that no rounding makes, of the largest logit.
_CLEAR = 1e-9
# So few rows, as classifiers have, are all tried.
_FEW = 128


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
        order: Items from the first to be erased to the last, then padding, (B, N) long, or
            (B, K, N) for K rankings.

    Returns:
        (B,) long, or (B, K), from 1; -1 if the decision never changes.
    """
    orders = order.unsqueeze(1) if order.ndim == 2 else order
    counts = torch.full(orders.shape[:2], -1, dtype=torch.long, device=order.device)
    rows, terms, empty, decision, rivals = _that_may_flip(weights, item_logits, bias, mask)
    if len(rows):
        asked = torch.split(rivals, 1, dim=-1)
        counts[rows] = _first_change(terms, orders[rows], empty, decision, asked)
    return counts.squeeze(1) if order.ndim == 2 else counts


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
    sizes = torch.full_like(mask[:, 0], -1, dtype=torch.long)
    members = torch.zeros_like(mask)
    rows, terms, empty, decision, rivals = _that_may_flip(weights, item_logits, bias, mask)
    if not len(rows):
        return sizes, members
    totals = terms.sum(1).mT
    classes = torch.cat([decision[:, None], rivals], dim=1)
    totals = totals.gather(1, classes.unsqueeze(-1).expand(-1, -1, totals.shape[-1]))
    leads = totals[:, :1] - totals[:, 1:]
    support = (terms[..., -1] > 0).any(1)
    leads = leads.masked_fill(~support.unsqueeze(1), -torch.inf)
    orders = leads.argsort(dim=-1, descending=True, stable=True)  # (B, C - 1, N)
    # With one head the best rival is the first to win under its own order: no other need be asked.
    asked = [rivals] if terms.shape[1] == 1 else torch.split(rivals, 1, dim=-1)
    counts = _first_change(terms, orders, empty, decision, asked)
    items = terms.shape[2]
    size, best = counts.masked_fill(counts < 0, items + 1).min(-1)
    order = orders[torch.arange(len(best), device=best.device), best]
    size = size.masked_fill(size > items, -1)
    sizes[rows], members[rows] = size, order.argsort(-1) < size[:, None]
    return sizes, members


def _that_may_flip(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What there is of the rows that some erasure may change.

    Whatever is left of a head, its logits are a mean of its items' or its share of the bias: where
    the decision leads each rival by the sum of the least of these, nothing changes it.

    Returns:
        The rows (r,) long, their terms (r, H, N, C + 1), logits of an empty context, (C,) or (r, C),
        decision (r,) and all other classes (r, C - 1).
    """
    wide, items = weights, item_logits
    if weights.ndim == 2:
        wide, items = weights.unsqueeze(1), item_logits.unsqueeze(1)
    terms = weighted_items(wide, items, mask)
    # Before anything is erased, the same whatever order is erased next.
    sums = terms.cumsum(2)[:, :, -1:]
    if terms.shape[1] > 1:
        decision = renormalize(sums, bias).argmax(-1).squeeze(1)
    else:  # undivided: a quotient's rounding could make a tie of a lead
        logits, mass = sums[:, 0, 0, :-1], sums[:, 0, 0, -1:]
        decision = torch.where(mass > 0, logits, bias.double().expand_as(logits)).argmax(-1)
    classes = item_logits.shape[-1]
    rivals = (decision[:, None] + torch.arange(1, classes, device=decision.device)) % classes
    if len(decision) <= _FEW:
        every = torch.arange(len(decision), device=decision.device)
        return every, terms, bias, decision, rivals
    items = items.double()
    own = decision[:, None, None, None].expand(*items.shape[:-1], 1)
    reached = (wide > 0) & mask.unsqueeze(1)
    lead = items.gather(-1, own) - items
    least = lead.masked_fill(~reached.unsqueeze(-1), torch.inf).amin(2)
    empty = bias.double().expand(len(decision), -1)
    empty = (empty.gather(-1, decision[:, None]) - empty).unsqueeze(1) / items.shape[1]
    total = torch.minimum(least, empty).sum(1).scatter(-1, decision[:, None], torch.inf)
    # Far above what rounding adds, and NaN among them.
    scale = items.abs().masked_fill(~reached.unsqueeze(-1), 0.0).amax((1, 2, 3))
    clear = total.amin(-1) > _CLEAR * torch.maximum(scale, bias.abs().amax(-1))
    rows = (~clear).nonzero().squeeze(-1)
    left = bias if bias.ndim == 1 else bias[rows]
    return rows, terms[rows], left, decision[rows], rivals[rows]


def _first_change(
    terms: Tensor, orders: Tensor, bias: Tensor, decision: Tensor, rivals: Sequence[Tensor]
) -> Tensor:
    """Number of items (B, K) of K orders (B, K, N) erased when a rival first wins, or -1.

    Rivals are classes (B, 1), or one for each order (B, K); with several heads any class is.
    """
    heads, width = terms.shape[1], terms.shape[-1]
    size = max(1, _TERMS // max(1, terms.numel()))
    emptied = (bias.argmax(-1) != decision)[:, None, None]
    counts = []
    for start in range(0, orders.shape[1], size):
        part = slice(start, start + size)
        # From the tail, so that what is left is summed.
        tails = orders[:, part, 1:].flip(-1)
        if heads == 1:
            asked = [rival if rival.shape[1] == 1 else rival[:, part] for rival in rivals]
            changed = _beaten(terms[:, 0].mT, tails, emptied, decision, asked)
        else:
            index = tails[:, :, None, :, None].expand(-1, -1, heads, -1, width)
            wide = terms.unsqueeze(1).expand(-1, tails.shape[1], -1, -1, -1)
            sums = wide.gather(-2, index).cumsum(-2).flatten(0, 1)
            every = bias.expand(len(terms), -1).repeat_interleave(tails.shape[1], dim=0)
            winners = renormalize(sums, every).argmax(-1).view(tails.shape)
            changed = winners != decision[:, None, None]
        at_last = emptied.expand(-1, changed.shape[1], -1)
        changed = torch.cat([changed.flip(-1), at_last], dim=-1)
        first = changed.byte().argmax(-1) + 1
        counts.append(first.masked_fill(~changed.any(-1), -1))
    return torch.cat(counts, dim=1)


def _beaten(
    columns: Tensor, tails: Tensor, emptied: Tensor, decision: Tensor, rivals: Sequence[Tensor]
) -> Tensor:
    """Whether a rival wins on the first 1, 2, ... items of tails (B, K, M), (B, K, M) bool.

    For the columns (B, C + 1, N) of one head. Sums are compared undivided: a quotient's rounding
    could make a tie of a lead.
    """

    def sums(classes: Tensor) -> Tensor:
        own = columns.gather(1, classes.unsqueeze(-1).expand(-1, -1, columns.shape[-1]))
        return own.expand(-1, tails.shape[1], -1).gather(-1, tails).cumsum(-1)

    leading = sums(decision[:, None])
    beaten = torch.zeros_like(tails, dtype=torch.bool)
    for rival in rivals:
        wins_ties = (rival < decision[:, None]).unsqueeze(-1)
        ahead = sums(rival)
        beaten |= (ahead > leading) | ((ahead == leading) & wins_ties)
    mass = sums(torch.full_like(decision[:, None], columns.shape[1] - 1))
    return torch.where(mass > 0, beaten, emptied)
