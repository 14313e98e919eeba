"""What attention weights are replaced by.

A patch is a function of a layer's weights and of what each query may reach, both (B, H, Q, N), to
the weights that are used: `uniform`, `shuffled`, `among`, `off`, a partial `move`, or any other;
`restrict` makes it one of chosen heads.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnlight.errors import InputError
from attnlight.functional.alignment import move_weights
from attnlight.functional.random import draw_keys

Patch = Callable[[Tensor, Tensor], Tensor]


def restrict(patch: Patch, heads: Sequence[int]) -> Patch:
    """Patch that changes chosen heads alone.

    Args:
        patch: What is used for them; it is called with their weights and what they may reach,
            (B, h, Q, N) for h chosen heads.
        heads: Chosen heads.
    """

    def restricted(weights: Tensor, allowed: Tensor) -> Tensor:
        chosen, count = list(heads), weights.shape[1]
        if wrong := [head for head in chosen if not 0 <= head < count]:
            raise InputError(f"there is no head {wrong[0]}; heads are 0 to {count - 1}.")
        own, changed = weights[:, chosen], weights.clone()
        changed[:, chosen] = expanded(patch(own, allowed[:, chosen]), own)
        return changed

    return restricted


def uniform(weights: Tensor, allowed: Tensor) -> Tensor:
    """Patch: equal weights on all that a query may reach; 0 where that is nothing."""
    return allowed.to(weights.dtype) / allowed.sum(-1, keepdim=True).clamp(min=1)


def shuffled(index: Tensor, seed: int) -> Patch:
    """Patch: the weights of each query in a random order over what it may reach.

    One order of a text's items, a function of the seed, its index and the items' numbers alone,
    serves all queries, heads and layers: of a query that may not reach all items, the part of it.

    Args:
        index: Dataset index of each text, (B,) long.
        seed: Any integer.
    """

    def patch(weights: Tensor, allowed: Tensor) -> Tensor:
        numbers = allowed.flatten(1, 2).any(1).cumsum(-1) - 1  # of items, without padding
        keys = draw_keys(seed, index, torch.zeros_like(index), 1, numbers.shape[-1])[:, 0]
        keys = keys.gather(-1, numbers.clamp(min=0))[:, None, None].expand_as(allowed)
        last = torch.iinfo(keys.dtype).max
        order = keys.masked_fill(~allowed, last).argsort(dim=-1, stable=True)
        places = (~allowed).byte().argsort(dim=-1, stable=True)
        return torch.zeros_like(weights).scatter(-1, places, weights.gather(-1, order))

    return patch


def among(reached: Tensor) -> Patch:
    """Patch: the weights on what each query reaches, renormalised: the softmax of the other scores alone.

    Args:
        reached: What each query keeps, (B, 1, Q, N) bool. A query whose weights on these are 0 has equal
            ones on those that it may reach.
    """

    def patch(weights: Tensor, allowed: Tensor) -> Tensor:
        kept = weights * reached
        total = kept.sum(-1, keepdim=True)
        equal = uniform(weights, allowed & reached)
        return torch.where(total > 0, kept / total.clamp(min=torch.finfo(kept.dtype).tiny), equal)

    return patch


def move(
    source: Tensor, blocks: Tensor, target: Tensor, weights: Tensor, allowed: Tensor
) -> Tensor:
    """Weights of other texts, moved along an alignment, (B, H, Q, N) float64; a patch without the last two.

    A query has the mean of the rows of its block in the source, each moved by `move_weights`. What it
    may not reach is left out, and the rest is scaled to the sum of these rows. A query whose block has
    no row in the source, or of whose rows nothing is left, keeps its own weights.

    Args:
        source: Weights of the other texts, (B, H, M, M).
        blocks: Block of each of their tokens, (B, M) long, -1 on padding.
        target: Block of each token of the own texts, (B, N) long, -1 on padding.
        weights: Those of the own texts, (B, H, N, N).
        allowed: What their queries may reach, (B, H, N, N) bool.
    """
    rows = move_weights(source.flatten(1, 2), blocks, target).nan_to_num(0.0)
    rows = rows.view(*source.shape[:3], -1)
    alike = (target.unsqueeze(2) == blocks.unsqueeze(1)) & (target >= 0).unsqueeze(2)
    share = (alike / alike.sum(-1, keepdim=True).clamp(min=1).double()).unsqueeze(1)
    moved = (share @ rows) * allowed
    total, size = moved.sum(-1, keepdim=True), share @ source.double().sum(-1, keepdim=True)
    moved = moved * (size / total.clamp(min=torch.finfo(total.dtype).tiny))
    return torch.where(total > 0, moved, weights.double())


def off(weights: Tensor, allowed: Tensor) -> Tensor:
    """Patch: weights of 0, so that a head adds nothing to the states."""
    return torch.zeros_like(weights)


def expanded(weights: Tensor, own: Tensor) -> Tensor:
    """Weights in the type and shape of those that they replace.

    Raises:
        InputError: Their shape does not fit.
    """
    weights = weights.to(own)
    try:
        return weights.expand_as(own)
    except RuntimeError:
        found, expected = tuple(weights.shape), tuple(own.shape)
        raise InputError(f"given weights have the shape {found}, not {expected}.") from None
