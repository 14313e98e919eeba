"""The attention of largest JS from a given one whose mean of one number stays between two bounds.

The Jensen-Shannon divergence from w is convex, so its maximum over the attentions a with
`low <= sum_i a_i e_i <= high` is at a vertex: all on one item, or on two items such that the mean
is `low` or `high`. Pairs are pruned by an upper bound that is a sum of one term per item, so that an
item is compared with the best of all others, and only pairs that pass cost logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

# Pairs whose bound is computed at once.
_PAIRS = 1 << 18
# Distances from a bound below this count as this, so that their reciprocal is finite.
_LEAST_GAP = 1e-290
_LN2 = math.log(2)


def max_js_attention(
    weights: Tensor, e: Tensor, low: Tensor, high: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The attention with the largest JS from `weights` among those whose mean of e is in bounds.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        e: The number of each item, (B, N) float64, finite.
        low: Lowest means of K pairs of bounds, each within the next, (B, K) float64, may be -inf.
        high: Highest means, (B, K) float64, may be inf.
        mask: What attention may reach, (B, N) bool.

    Returns:
        The attention (B, N) float64 within the last bounds, with at most two items above 0, or
        `weights` where nothing is in bounds; and the largest JS within each, (B, K) float64, in
        nats, ascending, 0 where nothing is in bounds.
    """
    alone = one_item_js(weights)
    # JS at two items, summed, less twice JS halfway between them is a sum of one term per item.
    # `bend` is an item's term plus the least term of its row: no pair with that item has less.
    bend = alone - _LN2 / 2 - _gain(torch.full_like(weights, 0.5), weights)
    bend = bend + bend.masked_fill(~mask, math.inf).amin(-1, keepdim=True)
    # The best vertex so far: its JS, -1 where there is none, its two items, or one of them twice,
    # and the share of each.
    best = weights.new_full(weights.shape[:1], -1.0)
    items = torch.zeros(len(weights), 2, dtype=torch.long, device=weights.device)
    shares, curve = weights.new_zeros(len(weights), 2), []
    for bounds in torch.stack([low, high], dim=-1).unbind(1):
        inside = mask & (e >= bounds[:, :1]) & (e <= bounds[:, 1:])
        js, item = alone.masked_fill(~inside, -1.0).max(-1)
        better = (js > best)[:, None]
        items = torch.where(better, item[:, None], items)
        shares = torch.where(better, shares.new_tensor([1.0, 0.0]), shares)
        best = torch.maximum(best, js)
        # The best pair of each row, -1 for none: bound, item below and item above as the digits of a
        # number to base n; of equal pairs the one of lowest number.
        n, pair = e.shape[1], torch.full_like(best, -1, dtype=torch.long)
        for bound, i, j in _pairs(bounds, e, mask, alone, bend, best):
            row = bound // 2
            js = two_item_js(_shares(bounds, e, bound, i, j), (weights[row, i], weights[row, j]))
            top = best.scatter_reduce(0, row, js, "amax")
            winning = ((js == top[row]) & (js > best[row])).nonzero().squeeze(-1)
            number = (bound[winning] * n + i[winning]) * n + j[winning]
            pair = pair.scatter_reduce(0, row[winning], number, "amin", include_self=False)
            best.copy_(top)
        head, j = pair.clamp(min=0) // n, pair.clamp(min=0) % n
        bound, i = head // n, head % n
        found = (pair >= 0)[:, None]
        items = torch.where(found, torch.stack([i, j], dim=-1), items)
        shares = torch.where(found, torch.stack(_shares(bounds, e, bound, i, j), dim=-1), shares)
        curve.append(best)
    attention = torch.zeros_like(weights).scatter_add(1, items, shares)
    attention = torch.where(best[:, None] >= 0, attention, weights)
    return attention, torch.stack(curve, dim=-1).clamp(min=0.0)


def js_from(weights: Tensor, attention: Tensor) -> Tensor:
    """JS from `weights` (..., N) of any attention (..., N), each summing to 1, (...).

    The same to the last digits as that of attention on one or two items; small JS lose digits.
    """
    terms = _gain(attention, weights) + weights * _LN2
    return (terms.sum(-1) / 2).clamp(0.0, _LN2)


def one_item_js(weights: Tensor) -> Tensor:
    """JS from `weights` (..., N) of all attention on each item, (..., N)."""
    return ((_LN2 + _gain(torch.ones_like(weights), weights)) / 2).clamp(0.0, _LN2)


def two_item_js(shares: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> Tensor:
    """JS from an attention of attention on two items alone, by their shares and its weights."""
    both = _gain(shares[0], weights[0]) + _gain(shares[1], weights[1])
    return ((_LN2 + both) / 2).clamp(0.0, _LN2)


def _gain(share: Tensor, weight: Tensor) -> Tensor:
    """How much more an item adds to 2 JS with a share than without one."""
    # 0 log 0 by way of the smallest number: on a CPU xlogy takes six times as long.
    tiny = torch.finfo(share.dtype).tiny
    total = (share + weight).clamp(min=tiny)
    own = weight * (weight / total).clamp(min=tiny).log()
    return share * (2 * share / total).clamp(min=tiny).log() + own


def _pairs(
    bounds: Tensor, e: Tensor, mask: Tensor, alone: Tensor, bend: Tensor, best: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pairs of an item below and one above a bound whose JS may be above the best so far.

    First the items of least weight, nearest to the bound and furthest from it. Then all pairs that
    an upper bound of JS leaves: JS is convex between two items, and so lies below the line through
    its values there by at least `bend` times the smaller share. Either item may have the smaller
    share, and in each case the bound is a sum of one term per item: a pair whose sum is below 0 in
    both cases has a JS below the best.

    Args:
        bounds: (B, 2); no item is below or above one that is infinite.
        e: The number of each item, (B, N).
        mask: What attention may reach, (B, N) bool.
        alone: JS of all attention on each item, (B, N).
        bend: Least gap between JS at the item and another, summed, and twice JS halfway, (B, N).
        best: JS of the best vertex so far, (B,); the caller updates it between pieces.

    Yields:
        Bounds (E,), from 0 to 2 B - 1, items below (E,) and items above (E,).
    """
    finite = bounds.isfinite()[..., None]
    distance = bounds[..., None].masked_fill(~finite, 0.0) - e[:, None]
    usable = mask[:, None] & finite
    zero, never = distance.new_tensor(0.0), distance.new_tensor(-math.inf)
    inverse = distance.abs().clamp(min=_LEAST_GAP).reciprocal()  # (B, 2, N)
    not_below = torch.where(usable & (distance > 0), zero, never)
    not_above = torch.where(usable & (distance < 0), zero, never)
    candidates = []
    for off in (not_below, not_above):
        scores = (alone[:, None] + off, inverse + off, off - inverse)
        values, items = torch.stack(scores, dim=2).flatten(0, 1).max(-1)
        candidates += [items, values.isfinite()]
    i, one, j, other = candidates
    bound, first, second = (one[:, :, None] & other[:, None, :]).nonzero().unbind(-1)
    yield bound, i[bound, first], j[bound, second]
    excess = alone - best[:, None]
    bent = excess - bend
    # Terms (4 B, N) of items below and above; the pairs whose sum is above 0.
    below = (torch.stack([bent, excess])[:, :, None] * inverse + not_below).flatten(0, 2)
    above = (torch.stack([excess, bent])[:, :, None] * inverse + not_above).flatten(0, 2)
    ones = below + above.amax(-1, keepdim=True) > 0
    others = above + below.amax(-1, keepdim=True) > 0
    rows, i = ones.nonzero().unbind(-1)
    j, counts = others.nonzero()[:, 1], others.sum(-1)
    starts, counts = (counts.cumsum(0) - counts)[rows], counts[rows]
    lower, upper = below[rows, i], above[others]
    for part in torch.split(torch.arange(len(rows), device=e.device), max(1, _PAIRS // e.shape[1])):
        entry = part.repeat_interleave(counts[part])
        before = starts[part] - counts[part].cumsum(0) + counts[part]
        place = before.repeat_interleave(counts[part])
        place += torch.arange(len(place), device=e.device)
        kept = (lower[entry] + upper[place] > 0).nonzero().squeeze(-1)
        entry = entry[kept]
        yield rows[entry].remainder(bounds.numel()), i[entry], j[place[kept]]


def _shares(
    bounds: Tensor, e: Tensor, bound: Tensor, i: Tensor, j: Tensor
) -> tuple[Tensor, Tensor]:
    """Shares (E,) of items i below and j above, whose mean is one of the bounds (B, 2)."""
    row, value = bound // 2, bounds.flatten()[bound]
    below, above = (value - e[row, i]).abs(), (value - e[row, j]).abs()
    return above / (below + above), below / (below + above)
