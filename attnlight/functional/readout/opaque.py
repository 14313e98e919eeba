"""Erasure and gradients for readouts that are not affine in attention.

The counterparts of the closed forms in `erasure` and `attribution`; each erasure is a candidate
attention, evaluated by one call of the readout per item. A readout maps candidate attentions
(B, H, K, N) to logits (B, K, C).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlight.functional.attribution.weight_gradient import Target, target_class

ReadoutFunction = Callable[[Tensor], Tensor]

# From rows (E,) long and their attentions (E, H, N) to logits (E, C).
RowReadout = Callable[[Tensor, Tensor], Tensor]

# Weights, or logits if they are more, of the candidates evaluated at once: 8 MiB in single precision.
_ELEMENTS = 1 << 21
# Most erasures of a ranking evaluated in one step.
_STEPS = 8


def at_once(weights: Tensor, classes: int, times: int = 1) -> int:
    """Number of rows of weights (B, H, N) to evaluate at once, each with so many candidates."""
    return max(1, _ELEMENTS // (times * max(1, classes, weights.shape[1:].numel())))


def erase_each_opaque(
    readout: RowReadout, weights: Tensor, bias: Tensor, mask: Tensor, logits: Tensor
) -> Tensor:
    """Logits after erasing each item alone and renormalising.

    Args:
        readout: From rows (E,) and their attentions (E, H, N) to logits (E, C).
        weights: (B, H, N), 0 off the mask.
        bias: Logits of an empty context, (C,) or (B, C).
        mask: Items that attention may reach, (B, N) bool.
        logits: Logits of the original attention, (B, C).

    Returns:
        (B, N, C) float64; `bias` where no item remains, the original logits off the mask.
    """
    erased, (row, item) = logits.double().unsqueeze(1).repeat(1, mask.shape[1], 1), mask.nonzero().T
    kept = torch.arange(mask.shape[1], device=mask.device) != item[:, None, None]
    erased[row, item] = keep_items_opaque(readout, weights, bias, kept, row).squeeze(1)
    return erased


def keep_items_opaque(
    readout: RowReadout, weights: Tensor, bias: Tensor, kept: Tensor, rows: Tensor
) -> Tensor:
    """Logits when only the items of a set remain, renormalised, for K sets of some rows.

    Arguments are those of `erase_each_opaque`, and `kept` (r, K, N) bool, the sets of `rows` (r,) long.

    Returns:
        (r, K, C) float64; `bias` where no item remains.
    """
    row = rows.repeat_interleave(kept.shape[1])
    logits = bias.double().expand(len(weights), -1)[row]
    places = torch.arange(len(row), device=row.device)
    for block in torch.split(places, at_once(weights, bias.shape[-1])):
        candidates, nonempty = _renormalized(weights[row[block]], kept.flatten(0, 1)[block])
        part = block[nonempty]
        logits[part] = readout(row[part], candidates[nonempty]).double()
    return logits.view(*kept.shape[:2], -1)


def first_flip_opaque(
    readout: RowReadout, weights: Tensor, bias: Tensor, mask: Tensor, logits: Tensor, orders: Tensor
) -> Tensor:
    """Number of items of rankings erased when the decision first changes.

    A ranking is evaluated up to the change, by one erasure at first and then by several at once.
    Arguments are those of `erase_each_opaque`, and `orders` (B, K, N) long: items in order of erasure,
    then padding.

    Returns:
        (B, K) long, from 1; -1 if the decision never changes.
    """
    decision, lengths = logits.argmax(-1), mask.sum(-1)
    empty_changes = bias.argmax(-1).expand_as(decision) != decision
    counts = torch.full(orders.shape[:2], -1, dtype=torch.long, device=mask.device)
    pairs = torch.cartesian_prod(*(torch.arange(n, device=mask.device) for n in counts.shape))
    size = at_once(weights, logits.shape[-1], _STEPS)
    for rows, rankings in (part.unbind(-1) for part in torch.split(pairs.view(-1, 2), size)):
        first, steps = 0, 1
        place = orders[rows, rankings].argsort(-1)
        while len(rows):
            erased = torch.arange(first, first + steps, device=mask.device) + 1
            remaining = place.unsqueeze(1) >= erased[:, None]
            candidates, nonempty = _renormalized(weights[rows, None], remaining)  # (E, S, H, N)
            nonempty &= erased <= lengths[rows, None]
            changed = empty_changes[rows, None] & (erased <= lengths[rows, None])
            flat_rows = rows[:, None].expand(nonempty.shape)[nonempty]
            changed[nonempty] = (
                readout(flat_rows, candidates[nonempty]).argmax(-1) != decision[flat_rows]
            )
            flips = changed.any(-1)
            counts[rows[flips], rankings[flips]] = first + 1 + changed[flips].byte().argmax(-1)
            first += steps
            more = ~flips & (first < lengths[rows])
            rows, rankings, place = rows[more], rankings[more], place[more]
            steps = min(2 * steps, _STEPS)
    return counts


def readout_gradient(
    readout: ReadoutFunction, weights: Tensor, mask: Tensor, target: Target = None
) -> Tensor:
    """Gradient of the probability of `target_class` with respect to each attention weight.

    The weights are free variables after the softmax, as defined by Serrano and Smith (2019).
    `readout` must not capture tensors created in inference mode, which autograd cannot use. The result
    is (B, H, N) float64 like the weights, 0 off the mask (B, N).
    """
    with torch.enable_grad():
        free = weights.detach().clone().requires_grad_()
        logits = readout(free.unsqueeze(2)).squeeze(1).double()
        chosen = target_class(logits.detach(), target)[:, None]
        (gradient,) = torch.autograd.grad(logits.softmax(-1).gather(-1, chosen).sum(), free)
    return gradient.double().masked_fill(~mask.unsqueeze(1), 0.0)


def _renormalized(weights: Tensor, remaining: Tensor) -> tuple[Tensor, Tensor]:
    """Renormalised weights (..., H, N) of remaining items (..., N), and whether any is above 0."""
    masked = weights * remaining.unsqueeze(-2)
    mass = masked.sum(-1, keepdim=True)
    return masked / torch.where(mass > 0, mass, 1.0), (mass > 0).any(-2).squeeze(-1)
