"""Erasure where the readout is not affine: each way to erase is a candidate attention to read.

What `erasure` and `attribution` have in closed form, at the cost of one readout for each item. A
readout is a function of candidate attentions (B, H, K, N) to logits (B, K, C).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ReadCandidates = Callable[[Tensor], Tensor]

# From rows (E,) long and attentions (E, H, N) of these to logits (E, C).
Ask = Callable[[Tensor, Tensor], Tensor]

# Attention weights of the candidates that are read at once: 8 MiB in single precision.
_WEIGHTS = 1 << 21
# Items of a ranking that are erased at most before its decisions are looked at.
_STEPS = 8


def read_each(ask: Ask, weights: Tensor, bias: Tensor, mask: Tensor, logits: Tensor) -> Tensor:
    """Logits after erasing each item alone and renormalising.

    Args:
        ask: From rows (E,) and attentions (E, H, N) of these to logits (E, C).
        weights: (B, H, N), 0 off the mask.
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.
        logits: Logits before anything is erased, (B, C).

    Returns:
        (B, N, C) float64; `bias` where nothing is left, the own logits off the mask.
    """
    found = logits.double().unsqueeze(1).repeat(1, mask.shape[1], 1)
    empty = bias.double().expand(len(mask), -1)
    places = torch.arange(mask.shape[1], device=mask.device)
    size = max(1, _WEIGHTS // max(1, weights.shape[1:].numel()))
    for pairs in torch.split(mask.nonzero(), size):
        row, item = pairs.unbind(-1)
        candidates, left = _left(weights[row], places != item[:, None])
        found[row[left], item[left]] = ask(row[left], candidates[left]).double()
        found[row[~left], item[~left]] = empty[row[~left]]
    return found


def first_flip_read(
    ask: Ask,
    weights: Tensor,
    bias: Tensor,
    mask: Tensor,
    logits: Tensor,
    orders: Tensor,
) -> Tensor:
    """Number of items of rankings that are erased when the decision first changes.

    A ranking is followed as far as that, one item first and then more and more at once.

    Args:
        ask: From rows (E,) and attentions (E, H, N) of these to logits (E, C).
        weights: (B, H, N), 0 off the mask.
        bias: Logits of an empty context, (C,) or (B, C).
        mask: What attention may reach, (B, N) bool.
        logits: Logits before anything is erased, (B, C).
        orders: Items from the first to be erased to the last, then padding, (B, K, N) long.

    Returns:
        (B, K) long, from 1; -1 if the decision never changes.
    """
    decision, lengths = logits.argmax(-1), mask.sum(-1)
    emptied = bias.argmax(-1).expand_as(decision) != decision
    counts = torch.full(orders.shape[:2], -1, dtype=torch.long, device=mask.device)
    pairs = torch.cartesian_prod(*(torch.arange(n, device=mask.device) for n in counts.shape))
    size = max(1, _WEIGHTS // (_STEPS * max(1, weights.shape[1:].numel())))
    for row, order in (part.unbind(-1) for part in torch.split(pairs.view(-1, 2), size)):
        done, steps = 0, 1
        place = orders[row, order].argsort(-1)
        while len(row):
            gone = torch.arange(done, done + steps, device=mask.device) + 1
            left = place.unsqueeze(1) >= gone[:, None]
            candidates, read = _left(weights[row].unsqueeze(1), left)  # (E, S, H, N)
            read &= gone <= lengths[row, None]
            changed = emptied[row, None] & (gone <= lengths[row, None])
            rows = row[:, None].expand(read.shape)[read]
            changed[read] = ask(rows, candidates[read]).argmax(-1) != decision[rows]
            flips = changed.any(-1)
            counts[row[flips], order[flips]] = done + 1 + changed[flips].byte().argmax(-1)
            done += steps
            more = ~flips & (done < lengths[row])
            row, order, place = row[more], order[more], place[more]
            steps = min(2 * steps, _STEPS)
    return counts


def readout_gradient(readout: ReadCandidates, weights: Tensor, mask: Tensor) -> Tensor:
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


def _left(weights: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (..., H, N) of what is kept (..., N), renormalised, and whether anything is, (...)."""
    left = weights * kept.unsqueeze(-2)
    mass = left.sum(-1, keepdim=True)
    return left / torch.where(mass > 0, mass, 1.0), (mass > 0).any(-2).squeeze(-1)
