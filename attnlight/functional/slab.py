"""The attention furthest from a given one whose mean of one number stays between two bounds.

The Jensen-Shannon divergence from w is convex, so its maximum over the attentions a with
`low <= sum_i a_i e_i <= high` is at a vertex: all on one item, or on two items such that the mean
is `low` or `high`. Pairs are pruned by a bound that separates into a term for each item, so that
the pairs that pass are found by sorting and only they cost logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Pairs whose divergence is computed at once, and how many items of a kind open the search.
_PAIRS, _OPENING = 1 << 18, 4
_LN2 = math.log(2)


def furthest_in_slab(weights: Tensor, e: Tensor, low: Tensor, high: Tensor, mask: Tensor) -> Tensor:
    """The attention with the largest JS from `weights` among those whose mean of e is in bounds.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        e: The number of each item, (B, N) float64.
        low: Lowest mean, (B,) float64, may be -inf.
        high: Highest mean, (B,) float64, may be inf.
        mask: What attention may reach, (B, N) bool.

    Returns:
        (B, N) float64, with at most two items above 0; `weights` where nothing is in bounds.
    """
    alone = one_item_js(weights)
    inside = mask & (e >= low[:, None]) & (e <= high[:, None])
    single, item = alone.masked_fill(~inside, -1.0).max(-1)
    edges = _Edges.between(weights, alone, e, torch.cat([low, high]), mask, single.repeat(2))
    edges.search()
    one = torch.zeros_like(weights).scatter_(1, item[:, None], 1.0)
    chosen = torch.where(single[:, None] >= 0, one, weights)
    for value, two in zip(edges.value.chunk(2), edges.attention().chunk(2), strict=True):
        chosen = torch.where((value > single)[:, None], two, chosen)
        single = torch.maximum(single, value)
    return chosen


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
    """What an item adds to 2 JS when it has a share, over what it has without one."""
    total = (share + weight).clamp(min=torch.finfo(share.dtype).tiny)
    return torch.xlogy(share, 2 * share / total) + torch.xlogy(weight, weight / total)


@dataclass
class _Edges:
    """Pairs of an item below and an item above a bound, R bounds, and the best pair so far.

    Attributes:
        weights: (R, N).
        alone: JS of each item alone, (R, N).
        below: How far each item is below the bound, (R, N), NaN for those that are not.
        above: How far each item is above the bound, (R, N), NaN for those that are not.
        bend: At least twice how far JS halfway between two items is below the mean of theirs, less
            the part of the other item, (R, N).
        least: The least `bend` of the row, (R, 1).
        value: Best JS so far, (R,).
        pair: Its item below times N plus its item above, (R,), or -1.
    """

    weights: Tensor
    alone: Tensor
    below: Tensor
    above: Tensor
    bend: Tensor
    least: Tensor
    value: Tensor
    pair: Tensor

    @classmethod
    def between(
        cls, weights: Tensor, alone: Tensor, e: Tensor, bounds: Tensor, mask: Tensor, value: Tensor
    ) -> _Edges:
        """All pairs across two bounds (2 B,) of each row."""
        distance = bounds[:, None] - e.repeat(2, 1)
        usable = mask.repeat(2, 1) & distance.isfinite()
        half = torch.full_like(weights, 0.5)
        bend = (_gain(torch.ones_like(half), weights) / 2 - _gain(half, weights)).repeat(2, 1)
        return cls(
            weights=weights.repeat(2, 1),
            alone=alone.repeat(2, 1),
            below=distance.masked_fill(~usable | (distance <= 0), math.nan),
            above=(-distance).masked_fill(~usable | (distance >= 0), math.nan),
            bend=bend,
            least=bend.masked_fill(~usable, math.inf).amin(-1, keepdim=True),
            value=value,
            pair=torch.full_like(value, -1, dtype=torch.long),
        )

    def search(self) -> None:
        """Find the best pair: a few likely ones first, then all that the bound leaves."""
        self._improve(*self._opening())
        # Along an edge JS is below its chord by at least twice `bend` of the halfway point times
        # the smaller share; the smaller share is one or the other, and each case separates.
        for first, second in ((0.0, 1.0), (1.0, 0.0)):
            cut = self.bend + self.least
            lower = (self.alone - first * cut - self.value[:, None]) / self.below
            upper = (self.alone - second * cut - self.value[:, None]) / self.above
            for rows, i, j in _pairs_above_zero(lower, upper):
                self._improve(rows, i, j)

    def attention(self) -> Tensor:
        """The best pair's attention, (R, N)."""
        items = self.weights.shape[1]
        found = self.pair.clamp(min=0)
        rows = torch.arange(len(found), device=found.device)
        i, j = found // items, found % items
        attention = torch.zeros_like(self.weights)
        attention[rows, i], attention[rows, j] = self._shares(rows, i, j)
        return attention

    def _shares(self, rows: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        below, above = self.below[rows, i], self.above[rows, j]
        return above / (below + above), below / (below + above)

    def _opening(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of the items of least weight, nearest to the bound and furthest from it."""
        i, j = self._likely(self.below), self._likely(self.above)
        low, high = self.below.gather(1, i), self.above.gather(1, j)
        rows, one, other = (low[:, :, None] + high[:, None, :]).isfinite().nonzero().unbind(-1)
        return rows, i[rows, one], j[rows, other]

    def _likely(self, distance: Tensor) -> Tensor:
        count = min(_OPENING, distance.shape[1])
        off = distance.isnan()
        scores = (self.alone, -distance, distance)
        tops = [score.masked_fill(off, -math.inf).topk(count).indices for score in scores]
        return torch.cat(tops, dim=1)

    def _improve(self, rows: Tensor, i: Tensor, j: Tensor) -> None:
        """Take the best of these pairs where it is better; of equals the one of lowest number."""
        js = two_item_js(self._shares(rows, i, j), (self.weights[rows, i], self.weights[rows, j]))
        best = self.value.scatter_reduce(0, rows, js, "amax")
        better = best > self.value
        winning = (js == best[rows]) & better[rows]
        pairs = (i * self.weights.shape[1] + j)[winning]
        self.pair = self.pair.scatter_reduce(0, rows[winning], pairs, "amin", include_self=False)
        self.value = best


def _pairs_above_zero(first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row, i and j of all pairs with `first[row, i] + second[row, j] > 0`, in pieces.

    Args:
        first: (R, N), NaN for items in no pair.
        second: (R, N), NaN for items in no pair.
    """
    items = first.shape[1]
    negated, order = (-second).masked_fill(second.isnan(), math.inf).sort(-1)
    counts = torch.searchsorted(negated, first.masked_fill(first.isnan(), -math.inf)).flatten()
    ends = counts.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, _PAIRS):
        number = torch.arange(start, min(start + _PAIRS, total), device=first.device)
        slot = torch.searchsorted(ends, number, right=True)
        rows = slot // items
        rank = number - ends[slot] + counts[slot]
        yield rows, slot % items, order[rows, rank]
