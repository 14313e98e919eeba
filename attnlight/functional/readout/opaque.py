"""Erasure and gradients for readouts that are not affine in attention.

The counterparts of the closed forms in `erasure` and `attribution`; each erasure is a candidate
attention, evaluated by one call of the readout per item. A readout maps candidate attentions
(B, H, K, N) to logits (B, K, C).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput

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


def keep_items_opaque(
    readout: RowReadout, weights: Tensor, bias: Tensor, kept: Tensor, rows: Tensor
) -> Tensor:
    """Logits when only the items of a set remain, renormalised, for K sets of some rows.

    Args:
        readout: From rows (E,) and their attentions (E, H, N) to logits (E, C).
        weights: (B, H, N), 0 off the mask.
        bias: Logits of an empty context, (C,) or (B, C).
        kept: The sets, (r, K, N) bool.
        rows: The rows, (r,) long.

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
    return logits.view(*kept.shape[:2], logits.shape[-1])


def first_flip_opaque(
    readout: RowReadout, weights: Tensor, bias: Tensor, mask: Tensor, logits: Tensor, orders: Tensor
) -> Tensor:
    """Number of items of rankings erased when the decision first changes.

    A ranking is evaluated up to the change, by one erasure at first and then by several at once.
    Arguments are those of `keep_items_opaque`, and the `mask` (B, N) bool, the `logits` (B, C) of the
    original attention, and `orders` (B, K, N) long: items in order of erasure, then padding.

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
    model: AttentionModel, output: AttentionOutput, value: Callable[[Tensor], Tensor]
) -> Tensor:
    """Gradient of the `value` of each row's logits (R, C) by each attention weight, (R, H, N).

    The weights are free variables after the softmax, as defined by Serrano and Smith (2019).
    """
    # Tensors made under inference mode cannot be in a graph: clone them. cuDNN's RNNs have no
    # backward pass in evaluation mode.
    with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
        fixed = output.apply(lambda tensor: tensor.detach().clone())
        with torch.enable_grad():
            weights = fixed.weights.requires_grad_()
            logits = model.readout(fixed, weights.unsqueeze(2)).squeeze(1)
            (gradient,) = torch.autograd.grad(value(logits).sum(), weights)
    return gradient


def _renormalized(weights: Tensor, remaining: Tensor) -> tuple[Tensor, Tensor]:
    """Renormalised weights (..., H, N) of remaining items (..., N), and whether any is above 0."""
    masked = weights * remaining.unsqueeze(-2)
    mass = masked.sum(-1, keepdim=True)
    return masked / torch.where(mass > 0, mass, 1.0), (mass > 0).any(-2).squeeze(-1)
