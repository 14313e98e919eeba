"""The attention of largest JS from a given one whose mean of one number stays between two bounds.

The Jensen-Shannon divergence from w is convex, so its maximum over the attentions a with
`low <= sum_i a_i e_i <= high` is at a vertex: all on one item, or on two items such that the mean
is `low` or `high`. Pairs are pruned by a bound that separates into a term for each item, so that
an item is compared with the best of all others, and only pairs that pass cost logarithms.
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
    best, curve = _BestVertex(weights, e, mask), []
    for bounds in zip(low.unbind(-1), high.unbind(-1), strict=True):
        best.widen(*bounds)
        curve.append(best.js)
    attention = torch.zeros_like(weights).scatter_add(1, best.items, best.shares)
    attention = torch.where(best.js[:, None] >= 0, attention, weights)
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


class _BestVertex:
    """The vertex of largest JS so far, for each of B rows of N items.

    Attributes:
        js: Its JS, (B,), -1 where there is none.
        items: The two items it lies on, (B, 2), or one of them twice.
        shares: The share of each, (B, 2).
    """

    def __init__(self, weights: Tensor, e: Tensor, mask: Tensor) -> None:
        self._weights, self._e, self._mask = weights, e, mask
        self._alone = one_item_js(weights)
        # At least twice how far JS halfway between two items is below the mean of theirs, as a part
        # of the one item and the least that the other can add.
        bend = self._alone - _LN2 / 2 - _gain(torch.full_like(weights, 0.5), weights)
        self._bend = bend + bend.masked_fill(~mask, math.inf).amin(-1, keepdim=True)
        self.js = weights.new_full(weights.shape[:1], -1.0)
        self.items = torch.zeros(len(weights), 2, dtype=torch.long, device=weights.device)
        self.shares = weights.new_zeros(len(weights), 2)

    def widen(self, low: Tensor, high: Tensor) -> None:
        """Take bounds (B,) that hold the bounds so far."""
        inside = self._mask & (self._e >= low[:, None]) & (self._e <= high[:, None])
        js, item = self._alone.masked_fill(~inside, -1.0).max(-1)
        better = (js > self.js)[:, None]
        self.items = torch.where(better, item[:, None], self.items)
        self.shares = torch.where(better, self.shares.new_tensor([1.0, 0.0]), self.shares)
        self.js = torch.maximum(self.js, js)
        # The best pair of each row, -1 for none: bound, item below and item above as the digits of a
        # number to base n; of equal pairs the one of lowest number.
        n, pair = self._e.shape[1], torch.full_like(self.js, -1, dtype=torch.long)
        bounds = torch.stack([low, high], dim=-1)
        for bound, i, j in self._pairs(bounds):
            row = bound // 2
            weights = self._weights[row, i], self._weights[row, j]
            js = two_item_js(self._shares(bounds, bound, i, j), weights)
            best = self.js.scatter_reduce(0, row, js, "amax")
            winning = ((js == best[row]) & (js > self.js[row])).nonzero().squeeze(-1)
            number = (bound[winning] * n + i[winning]) * n + j[winning]
            pair = pair.scatter_reduce(0, row[winning], number, "amin", include_self=False)
            self.js = best
        head, j = pair.clamp(min=0) // n, pair.clamp(min=0) % n
        bound, i = head // n, head % n
        found = (pair >= 0)[:, None]
        shares = torch.stack(self._shares(bounds, bound, i, j), dim=-1)
        self.items = torch.where(found, torch.stack([i, j], dim=-1), self.items)
        self.shares = torch.where(found, shares, self.shares)

    def _pairs(self, bounds: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pairs of an item below and one above a bound whose JS may be above the best so far.

        First the items of least weight, nearest to the bound and furthest from it. Then all pairs
        that a bound of JS leaves: along an edge JS is below its chord by at least twice `bend` of the
        halfway point times the smaller share. The smaller share is the one or the other, and each
        case separates: a pair whose sum is below 0 in both has a JS below the best.

        Args:
            bounds: (B, 2); no item is below or above one that is infinite.

        Yields:
            Bounds (E,), from 0 to 2 B - 1, items below (E,) and items above (E,).
        """
        finite = bounds.isfinite()[..., None]
        distance = bounds[..., None].masked_fill(~finite, 0.0) - self._e[:, None]
        usable = self._mask[:, None] & finite
        zero, never = distance.new_tensor(0.0), distance.new_tensor(-math.inf)
        inverse = distance.abs().clamp(min=_LEAST_GAP).reciprocal()  # (B, 2, N)
        not_below = torch.where(usable & (distance > 0), zero, never)
        not_above = torch.where(usable & (distance < 0), zero, never)
        candidates = []
        for off in (not_below, not_above):
            scores = (self._alone[:, None] + off, inverse + off, off - inverse)
            values, items = torch.stack(scores, dim=2).flatten(0, 1).max(-1)
            candidates += [items, values.isfinite()]
        i, one, j, other = candidates
        bound, first, second = (one[:, :, None] & other[:, None, :]).nonzero().unbind(-1)
        yield bound, i[bound, first], j[bound, second]
        excess = self._alone - self.js[:, None]
        bent = excess - self._bend
        lower = torch.stack([bent, excess])[:, :, None] * inverse + not_below
        upper = torch.stack([excess, bent])[:, :, None] * inverse + not_above
        for bound, i, j in _pairs_above_zero(lower.flatten(0, 2), upper.flatten(0, 2)):
            yield bound.remainder(bounds.numel()), i, j

    def _shares(self, bounds: Tensor, bound: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Shares (E,) of items i below and j above, whose mean is one of the bounds (B, 2)."""
        row, value = bound // 2, bounds.flatten()[bound]
        below, above = (value - self._e[row, i]).abs(), (value - self._e[row, j]).abs()
        return above / (below + above), below / (below + above)


def _pairs_above_zero(first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row, i and j of all pairs with `first[row, i] + second[row, j] > 0`, in pieces.

    Args:
        first: (R, N), -inf for items in no pair.
        second: (R, N), -inf for items in no pair.
    """
    ones = first + second.amax(-1, keepdim=True) > 0
    others = second + first.amax(-1, keepdim=True) > 0
    rows, i = ones.nonzero().unbind(-1)
    j, counts = others.nonzero()[:, 1], others.sum(-1)
    starts, counts = (counts.cumsum(0) - counts)[rows], counts[rows]
    one, other = first[rows, i], second[others]
    places = torch.arange(len(rows), device=rows.device)
    for part in torch.split(places, max(1, _PAIRS // first.shape[1])):
        entry = part.repeat_interleave(counts[part])
        before = starts[part] - counts[part].cumsum(0) + counts[part]
        place = before.repeat_interleave(counts[part])
        place += torch.arange(len(place), device=place.device)
        kept = (one[entry] + other[place] > 0).nonzero().squeeze(-1)
        entry = entry[kept]
        yield rows[entry], i[entry], j[place[kept]]
