"""The attention furthest from a given one whose mean of one number stays between two bounds.

The Jensen-Shannon divergence from w is convex, so its maximum over the attentions a with
`low <= sum_i a_i e_i <= high` is at a vertex: all on one item, or on two items such that the mean
is `low` or `high`. Pairs are pruned by a bound that separates into a term for each item, so that
an item is compared with the best of all others, and only pairs that pass cost logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Pairs whose bound is computed at once.
_PAIRS = 1 << 18
# What counts as no distance: the reciprocal of more is finite.
_NEAREST = 1e-290
_LN2 = math.log(2)


def furthest_in_slab(weights: Tensor, e: Tensor, low: Tensor, high: Tensor, mask: Tensor) -> Tensor:
    """The attention with the largest JS from `weights` among those whose mean of e is in bounds.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        e: The number of each item, (B, N) float64, finite.
        low: Lowest mean, (B,) float64, may be -inf.
        high: Highest mean, (B,) float64, may be inf.
        mask: What attention may reach, (B, N) bool.

    Returns:
        (B, N) float64, with at most two items above 0; `weights` where nothing is in bounds.
    """
    found = _Furthest.of(weights, e, mask)
    found.widen(low, high)
    attention = torch.zeros_like(weights).scatter_add(1, found.items, found.shares)
    return torch.where(found.value[:, None] >= 0, attention, weights)


def furthest_js(weights: Tensor, e: Tensor, low: Tensor, high: Tensor, mask: Tensor) -> Tensor:
    """The JS of `furthest_in_slab` for K pairs of bounds, each within the next.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        e: The number of each item, (B, N) float64, finite.
        low: Lowest means, (B, K) float64, descending, may be -inf.
        high: Highest means, (B, K) float64, ascending, may be inf.
        mask: What attention may reach, (B, N) bool.

    Returns:
        (B, K) float64, in nats, ascending; 0 where nothing is in bounds.
    """
    found, values = _Furthest.of(weights, e, mask), []
    for bounds in zip(low.unbind(-1), high.unbind(-1), strict=True):
        found.widen(*bounds)
        values.append(found.value)
    return torch.stack(values, dim=-1).clamp(min=0.0)


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
    # 0 log 0 by way of the smallest number: on a CPU xlogy takes six times as long.
    tiny = torch.finfo(share.dtype).tiny
    total = (share + weight).clamp(min=tiny)
    own = weight * (weight / total).clamp(min=tiny).log()
    return share * (2 * share / total).clamp(min=tiny).log() + own


@dataclass
class _Furthest:
    """The attention of largest JS so far, for each of B rows of N items.

    Attributes:
        weights: (B, N).
        e: (B, N).
        mask: (B, N).
        alone: JS of each item alone, (B, N).
        bend: At least twice how far JS halfway between two items is below the mean of theirs, less
            the part of the other item, (B, N).
        least: The least `bend` of the row, (B, 1).
        value: The largest JS so far, (B,), -1 where there is none.
        items: The two items that have it, (B, 2), or one of them twice.
        shares: What each of them has of it, (B, 2).
    """

    weights: Tensor
    e: Tensor
    mask: Tensor
    alone: Tensor
    bend: Tensor
    least: Tensor
    value: Tensor
    items: Tensor
    shares: Tensor

    @classmethod
    def of(cls, weights: Tensor, e: Tensor, mask: Tensor) -> _Furthest:
        """Nothing found yet."""
        alone = one_item_js(weights)
        bend = alone - _LN2 / 2 - _gain(torch.full_like(weights, 0.5), weights)
        return cls(
            weights=weights,
            e=e,
            mask=mask,
            alone=alone,
            bend=bend,
            least=bend.masked_fill(~mask, math.inf).amin(-1, keepdim=True),
            value=weights.new_full(weights.shape[:1], -1.0),
            items=torch.zeros(len(weights), 2, dtype=torch.long, device=weights.device),
            shares=weights.new_zeros(len(weights), 2),
        )

    def widen(self, low: Tensor, high: Tensor) -> None:
        """Take bounds (B,) that hold the bounds so far."""
        inside = self.mask & (self.e >= low[:, None]) & (self.e <= high[:, None])
        js, item = self.alone.masked_fill(~inside, -1.0).max(-1)
        whole = self.shares.new_tensor([1.0, 0.0]).expand_as(self.shares)
        self._take(js > self.value, torch.stack([item, item], dim=-1), whole)
        self.value = torch.maximum(self.value, js)
        edges = _Edges.across(self, torch.stack([low, high], dim=-1))
        # The best pair of each row, -1 for none: bound, item below and item above as the digits of a
        # number to base n; of equal pairs the one of lowest number.
        n, pair = self.e.shape[1], torch.full_like(self.value, -1, dtype=torch.long)
        for rows, i, j in edges.pairs():
            owner = edges.owner[rows]
            own = (self.weights[owner, i], self.weights[owner, j])
            js = two_item_js(edges.shares(rows, i, j), own)
            best = self.value.scatter_reduce(0, owner, js, "amax")
            winning = ((js == best[owner]) & (js > self.value[owner])).nonzero().squeeze(-1)
            number = (rows[winning] * n + i[winning]) * n + j[winning]
            pair = pair.scatter_reduce(0, owner[winning], number, "amin", include_self=False)
            self.value = best
        head, j = pair.clamp(min=0) // n, pair.clamp(min=0) % n
        row, i = head // n, head % n
        shares = torch.stack(edges.shares(row, i, j), dim=-1)
        self._take(pair >= 0, torch.stack([i, j], dim=-1), shares)

    def _take(self, where: Tensor, items: Tensor, shares: Tensor) -> None:
        self.items = torch.where(where[:, None], items, self.items)
        self.shares = torch.where(where[:, None], shares, self.shares)


@dataclass
class _Edges:
    """Pairs of an item below and an item above a bound, two bounds for each row, R = 2 B.

    Attributes:
        found: What is known of each row.
        gap: Distance of each item from the bound, (R, N).
        inverse: Its reciprocal, (B, 2, N).
        not_below: 0 for items below the bound, -inf for others, (B, 2, N).
        not_above: 0 for items above the bound, -inf for others, (B, 2, N).
        owner: The row of each bound, (R,).
    """

    found: _Furthest
    gap: Tensor
    inverse: Tensor
    not_below: Tensor
    not_above: Tensor
    owner: Tensor

    @classmethod
    def across(cls, found: _Furthest, bounds: Tensor) -> _Edges:
        """All pairs across bounds (B, 2); none across those that are infinite."""
        finite = bounds.isfinite()
        distance = bounds.masked_fill(~finite, 0.0)[..., None] - found.e[:, None]
        usable = found.mask[:, None] & finite[..., None]
        zero, never = distance.new_tensor(0.0), distance.new_tensor(-math.inf)
        gap = distance.abs()
        return cls(
            found=found,
            gap=gap.flatten(0, 1),
            inverse=gap.clamp(min=_NEAREST).reciprocal(),
            not_below=torch.where(usable & (distance > 0), zero, never),
            not_above=torch.where(usable & (distance < 0), zero, never),
            owner=torch.arange(len(bounds), device=bounds.device).repeat_interleave(2),
        )

    def pairs(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Bounds, items below and items above of pairs whose JS may be above the best so far.

        First the items of least weight, nearest to the bound and furthest from it. Then all pairs
        that a bound of JS leaves: along an edge JS is below its chord by at least twice `bend` of the
        halfway point times the smaller share. The smaller share is the one or the other, and each
        case separates: a pair whose sum is below 0 in both has a JS below the best.
        """
        found, likely = self.found, []
        for off in (self.not_below, self.not_above):
            scores = (found.alone[:, None] + off, self.inverse + off, off - self.inverse)
            values, items = torch.stack(scores, dim=2).flatten(0, 1).max(-1)
            likely += [items, values.isfinite()]
        i, one, j, other = likely
        rows, first, second = (one[:, :, None] & other[:, None, :]).nonzero().unbind(-1)
        yield rows, i[rows, first], j[rows, second]
        excess = found.alone - found.value[:, None]
        bent = excess - (found.bend + found.least)
        lower = torch.stack([bent, excess])[:, :, None] * self.inverse + self.not_below
        upper = torch.stack([excess, bent])[:, :, None] * self.inverse + self.not_above
        for bounds, i, j in _pairs_above_zero(lower.flatten(0, 2), upper.flatten(0, 2)):
            yield bounds.remainder(len(self.owner)), i, j

    def shares(self, rows: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Shares (E,) of items i below and j above bounds (E,), whose mean is the bound."""
        below, above = self.gap[rows, i], self.gap[rows, j]
        return above / (below + above), below / (below + above)


def _pairs_above_zero(first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Row, i and j of all pairs with `first[row, i] + second[row, j] > 0`, in pieces.

    Args:
        first: (R, N), -inf for items in no pair.
        second: (R, N), -inf for items in no pair.
    """
    hopeful = first + second.amax(-1, keepdim=True) > 0
    others = second + first.amax(-1, keepdim=True) > 0
    rows, i = hopeful.nonzero().unbind(-1)
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
