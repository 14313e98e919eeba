"""Number of items erased when the decision changes: along a ranking, and at minimum.

The decision is the class of the highest logit; ties go to the lower class.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlight.functional.erasure.erase import renormalize, weighted_items
from attnlight.functional.masking import allowed_classes

# Terms of the rankings evaluated at once: 32 MiB.
_TERMS = 1 << 22
# Lead, relative to the largest logit, that cannot be a rounding error.
_MIN_LEAD = 1e-9
# Up to this many rows, as classifiers have, screening costs more than it saves.
_UNSCREENED = 128


def first_flip(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor, order: Tensor
) -> Tensor:
    """Number of items of a ranking erased when the decision first changes.

    Serrano and Smith (2019), section 5. The remaining attention is renormalised; when no item
    remains the logits are `bias`. Arguments are those of `erase_ranking`; `order` may be (B, K, N), of
    K rankings.

    Returns:
        (B,) long, or (B, K), from 1; -1 if the decision never changes.
    """
    orders = order.unsqueeze(1) if order.ndim == 2 else order
    counts = torch.full(orders.shape[:2], -1, dtype=torch.long, device=order.device)
    rows, terms, empty, decision, rivals = _flippable_rows(weights, item_logits, bias, mask)
    if len(rows):
        rival_groups = torch.split(rivals, 1, dim=-1)
        counts[rows] = _first_change(terms, orders[rows], empty, decision, rival_groups)
    return counts.squeeze(1) if order.ndim == 2 else counts


def minimal_flip_set(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The fewest items whose erasure changes the decision, among those with weight above 0.

    Exact with one head: erasing item i lowers the lead of the decision y over a class c by
    `w_i (z_iy - z_ic)`, and renormalising does not change the sign of the lead, so the k items with
    the largest such terms favour class c most; the minimum over c is the answer.

    With several heads, each renormalised separately, this argument fails: the same greedy orders,
    by terms summed over heads, give a set that changes the decision, and its size is an upper
    bound. Arguments are those of `erase_each`.

    Returns:
        Size (B,) long, -1 if no erasure changes the decision, and members (B, N) bool.
    """
    sizes = torch.full_like(mask[:, 0], -1, dtype=torch.long)
    members = torch.zeros_like(mask)
    rows, terms, empty, decision, rivals = _flippable_rows(weights, item_logits, bias, mask)
    if not len(rows):
        return sizes, members
    totals = terms.sum(1).mT
    classes = torch.cat([decision[:, None], rivals], dim=1)
    totals = totals.gather(1, classes.unsqueeze(-1).expand(-1, -1, totals.shape[-1]))
    leads = totals[:, :1] - totals[:, 1:]
    support = (terms[..., -1] > 0).any(1)
    leads = leads.masked_fill(~support.unsqueeze(1), -torch.inf)
    orders = leads.argsort(dim=-1, descending=True, stable=True)  # (B, C - 1, N)
    # With one head the best rival is the first to win in its order: no other needs to be compared.
    rival_groups = [rivals] if terms.shape[1] == 1 else torch.split(rivals, 1, dim=-1)
    counts = _first_change(terms, orders, empty, decision, rival_groups)
    items, never = terms.shape[2], counts < 0
    if empty.ndim == 2:  # rows may differ in their allowed classes: the others are no rivals
        never |= ~allowed_classes(empty).gather(1, rivals)
    size, best = counts.masked_fill(never, items + 1).min(-1)
    order = orders[torch.arange(len(best), device=best.device), best]
    size = size.masked_fill(size > items, -1)
    sizes[rows], members[rows] = size, order.argsort(-1) < size[:, None]
    return sizes, members


def _flippable_rows(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rows whose decision some erasure may change, with their terms.

    After any erasure the logits of a head are a mean over its items' logits, or its share of the
    bias. Where the minima of the decision's lead over a rival, summed over heads, are positive for
    every rival, no erasure changes the decision.

    Returns:
        The rows (r,) long, their terms (r, H, N, C + 1), logits of an empty context, (C,) or
        (r, C), decision (r,) and all other classes (r, C - 1).
    """
    expanded, items = weights, item_logits
    if weights.ndim == 2:
        expanded, items = weights.unsqueeze(1), item_logits.unsqueeze(1)
    terms = weighted_items(expanded, items, mask)
    # Sums before any erasure, which do not depend on the order.
    sums = terms.cumsum(2)[:, :, -1:]
    if terms.shape[1] > 1:
        decision = renormalize(sums, bias).argmax(-1).squeeze(1)
    else:  # undivided, since rounding a quotient could turn a lead into a tie
        logits, mass = sums[:, 0, 0, :-1], sums[:, 0, 0, -1:]
        decision = torch.where(mass > 0, logits, bias.double().expand_as(logits)).argmax(-1)
    classes = item_logits.shape[-1]
    rivals = (decision[:, None] + torch.arange(1, classes, device=decision.device)) % classes
    if len(decision) <= _UNSCREENED:
        rows = torch.arange(len(decision), device=decision.device)
        return rows, terms, bias, decision, rivals
    items = items.double()
    winner = decision[:, None, None, None].expand(*items.shape[:-1], 1)
    attended = (expanded > 0) & mask.unsqueeze(1)
    lead = items.gather(-1, winner) - items
    min_lead = lead.masked_fill(~attended.unsqueeze(-1), torch.inf).amin(2)
    empty = bias.double().expand(len(decision), -1)
    empty = (empty.gather(-1, decision[:, None]) - empty).unsqueeze(1) / items.shape[1]
    total_lead = torch.minimum(min_lead, empty).sum(1).scatter(-1, decision[:, None], torch.inf)
    # Leads well above rounding error; NaN counts as flippable.
    scale = items.abs().masked_fill(~attended.unsqueeze(-1), 0.0).amax((1, 2, 3))
    stable = total_lead.amin(-1) > _MIN_LEAD * torch.maximum(scale, bias.abs().amax(-1))
    rows = (~stable).nonzero().squeeze(-1)
    bias = bias if bias.ndim == 1 else bias[rows]
    return rows, terms[rows], bias, decision[rows], rivals[rows]


def _first_change(
    terms: Tensor, orders: Tensor, bias: Tensor, decision: Tensor, rivals: Sequence[Tensor]
) -> Tensor:
    """Number of items (B, K) of K orders (B, K, N) erased when a rival first wins, or -1.

    Rivals are classes (B, 1), or one per order (B, K); with several heads every class is a rival.
    """
    heads, width = terms.shape[1], terms.shape[-1]
    block = max(1, _TERMS // max(1, terms.numel()))
    empty_changes = (bias.argmax(-1) != decision)[:, None, None]
    counts = []
    for start in range(0, orders.shape[1], block):
        part = slice(start, start + block)
        # From the end, so that the remaining items are summed.
        reversed_orders = orders[:, part, 1:].flip(-1)
        if heads == 1:
            rival_groups = [rival if rival.shape[1] == 1 else rival[:, part] for rival in rivals]
            changed = _rival_wins(
                terms[:, 0].mT, reversed_orders, empty_changes, decision, rival_groups
            )
        else:
            index = reversed_orders[:, :, None, :, None].expand(-1, -1, heads, -1, width)
            expanded = terms.unsqueeze(1).expand(-1, reversed_orders.shape[1], -1, -1, -1)
            sums = expanded.gather(-2, index).cumsum(-2).flatten(0, 1)
            biases = bias.expand(len(terms), -1).repeat_interleave(reversed_orders.shape[1], dim=0)
            winners = renormalize(sums, biases).argmax(-1).view(reversed_orders.shape)
            changed = winners != decision[:, None, None]
        last_changes = empty_changes.expand(-1, changed.shape[1], -1)
        changed = torch.cat([changed.flip(-1), last_changes], dim=-1)
        counts.append((changed.byte().argmax(-1) + 1).masked_fill(~changed.any(-1), -1))
    return torch.cat(counts, dim=1)


def _rival_wins(
    columns: Tensor,
    reversed_orders: Tensor,
    empty_changes: Tensor,
    decision: Tensor,
    rivals: Sequence[Tensor],
) -> Tensor:
    """Whether a rival wins on the first 1, 2, ... items of orders (B, K, M), (B, K, M) bool.

    For the columns (B, C + 1, N) of one head. Sums are compared undivided, since rounding a
    quotient could turn a lead into a tie.
    """

    def sums(classes: Tensor) -> Tensor:
        class_terms = columns.gather(1, classes.unsqueeze(-1).expand(-1, -1, columns.shape[-1]))
        return (
            class_terms.expand(-1, reversed_orders.shape[1], -1)
            .gather(-1, reversed_orders)
            .cumsum(-1)
        )

    decision_sums = sums(decision[:, None])
    wins = torch.zeros_like(reversed_orders, dtype=torch.bool)
    for rival in rivals:
        wins_ties = (rival < decision[:, None]).unsqueeze(-1)
        rival_sums = sums(rival)
        wins |= (rival_sums > decision_sums) | ((rival_sums == decision_sums) & wins_ties)
    mass = sums(torch.full_like(decision[:, None], columns.shape[1] - 1))
    return torch.where(mass > 0, wins, empty_changes)
