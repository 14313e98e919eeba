"""The attention of largest JS from a given one with the mean of one variable within bounds.

The Jensen-Shannon divergence from w is convex, so its maximum over the attentions a with
`low <= sum_i a_i e_i <= high` is at a vertex: all on one item, or on two items such that the mean
is `low` or `high`. Pairs are pruned by an upper bound that is a sum of one term per item, so that
an item is first compared with the best of all others; logarithms are taken for the remaining pairs.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

# Pairs whose bound is computed at once.
_PAIRS = 1 << 18
_ALL_PAIRS = 1 << 22  # the same on an accelerator
# Lower limit of distances from a bound, which keeps their reciprocals finite.
_LEAST_GAP = 1e-290
_LN2 = math.log(2)
ROUNDING = 1e-12  # of a JS


def max_js_attention(
    weights: Tensor, e: Tensor, low: Tensor, high: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The attention with the largest JS from `weights` among those with a mean of e in bounds.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        e: Value of the variable for each item, (B, N) float64, finite.
        low: Lower bounds of the mean, K of them, descending, (B, K) float64, may be -inf.
        high: Upper bounds of the mean, ascending, (B, K) float64, may be inf.
        mask: Items that attention may reach, (B, N) bool.

    Returns:
        The attention (B, N) float64 for the last bounds, with at most two items above 0, or
        `weights` where no attention is in bounds; and the largest JS for each pair of bounds,
        (B, K) float64, in nats, ascending, 0 where no attention is in bounds.
    """
    single_js = one_item_js(weights)
    # The sum of JS at two items minus twice JS halfway between them is a sum of one term per item.
    # `curvature` is an item's term plus the least term of its row, a lower bound over its pairs.
    curvature = single_js - _LN2 / 2 - _js_gain(torch.full_like(weights, 0.5), weights)
    curvature = curvature + curvature.masked_fill(~mask, math.inf).amin(-1, keepdim=True)
    # The best vertex so far: its JS (-1 for none), its two items (equal for a single one), and the
    # share of each.
    best = weights.new_full(weights.shape[:1], -1.0)
    items = torch.zeros(len(weights), 2, dtype=torch.long, device=weights.device)
    shares, curve = weights.new_zeros(len(weights), 2), []
    for bounds in torch.stack([low, high], dim=-1).unbind(1):
        inside = mask & (e >= bounds[:, :1]) & (e <= bounds[:, 1:])
        js, item = single_js.masked_fill(~inside, -1.0).max(-1)
        better = (js > best)[:, None]
        items = torch.where(better, item[:, None], items)
        shares = torch.where(better, shares.new_tensor([1.0, 0.0]), shares)
        best = torch.maximum(best, js)
        # The best pair of each row, encoded as the number with the digits bound, item below and
        # item above to base n, `none` for none; the lowest number breaks ties.
        n, none = e.shape[1], 2 * len(e) * e.shape[1] ** 2
        pair = torch.full_like(best, none, dtype=torch.long)
        pairs = _candidate_pairs if e.is_cpu else _all_pairs
        for bound, i, j, usable in pairs(bounds, e, mask, single_js, curvature, best):
            row = bound // 2
            js = two_item_js(_shares(bounds, e, bound, i, j), (weights[row, i], weights[row, j]))
            js = js if usable is None else js.masked_fill(~usable, -1.0)
            top = best.scatter_reduce(0, row, js, "amax")
            number = (bound * n + i) * n + j
            number = number.masked_fill((js != top[row]) | (js <= best[row]), none)
            found = torch.full_like(pair, none).scatter_reduce(0, row, number, "amin")
            pair = torch.where(found < none, found, pair)
            best.copy_(top)
        improved = (pair < none)[:, None]
        head, j = pair.masked_fill(pair == none, 0) // n, pair % n
        bound, i = head // n, head % n
        items = torch.where(improved, torch.stack([i, j], dim=-1), items)
        shares = torch.where(improved, torch.stack(_shares(bounds, e, bound, i, j), dim=-1), shares)
        curve.append(best)
    attention = torch.zeros_like(weights).scatter_add(1, items, shares)
    attention = torch.where(best[:, None] >= 0, attention, weights)
    return attention, torch.stack(curve, dim=-1).clamp(min=0.0)


def js_from(weights: Tensor, attention: Tensor) -> Tensor:
    """JS between `weights` (..., N) and any attention (..., N), each summing to 1, (...).

    Consistent with `one_item_js` and `two_item_js` to the last digits; less accurate for small JS.
    """
    return _in_range((_js_gain(attention, weights) + weights * _LN2).sum(-1) / 2)


def one_item_js(weights: Tensor) -> Tensor:
    """JS between `weights` (..., N) and all attention on each single item, (..., N)."""
    return _in_range((_LN2 + _js_gain(torch.ones_like(weights), weights)) / 2)


def two_item_js(shares: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> Tensor:
    """JS of attention on two items, from their shares and their original weights."""
    both = _js_gain(shares[0], weights[0]) + _js_gain(shares[1], weights[1])
    return _in_range((_LN2 + both) / 2)


def _in_range(js: Tensor) -> Tensor:
    """JS from 0 to ln 2, exactly ln 2 if up to rounding: attentions on items without weight are ties."""
    return js.clamp(min=0.0).masked_fill(js > _LN2 - ROUNDING, _LN2)


def _js_gain(share: Tensor, weight: Tensor) -> Tensor:
    """Increase of an item's term of 2 JS when its share rises from 0."""
    # Clamped so that 0 log 0 is 0: on a CPU xlogy takes six times as long.
    tiny = torch.finfo(share.dtype).tiny
    total = (share + weight).clamp(min=tiny)
    base = weight * (weight / total).clamp(min=tiny).log()
    return share * (2 * share / total).clamp(min=tiny).log() + base


Pairs = Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]


def _all_pairs(
    bounds: Tensor, e: Tensor, mask: Tensor, single_js: Tensor, curvature: Tensor, best: Tensor
) -> Pairs:
    """Every pair of items, and whether it is usable: an accelerator would wait to be told which are.

    Arguments and what is yielded are those of `_candidate_pairs`.
    """
    count, items = bounds.numel(), torch.arange(e.shape[1], device=e.device)
    distance = bounds[..., None] - e[:, None]  # (B, 2, N)
    reach = mask[:, None] & bounds.isfinite()[..., None]
    below, above = ((reach & side).flatten(0, 1) for side in (distance > 0, distance < 0))
    firsts = torch.arange(count * len(items), device=e.device)  # a bound and an item below it
    for part in torch.split(firsts, max(1, _ALL_PAIRS // max(1, len(items)))):
        bound, i = (
            x[:, None].expand(-1, len(items)) for x in (part // len(items), part % len(items))
        )
        usable = below.flatten()[part][:, None] & above[part // len(items)]
        yield bound.flatten(), i.flatten(), items.repeat(len(part)), usable.flatten()


def _candidate_pairs(
    bounds: Tensor, e: Tensor, mask: Tensor, single_js: Tensor, curvature: Tensor, best: Tensor
) -> Pairs:
    """Pairs of an item below and one above a bound whose JS may exceed the best so far.

    First pairs of extreme items: those of least weight, closest to the bound and farthest from it.
    Then all pairs that pass an upper bound on JS: JS is convex between two items and so lies below
    the chord by at least `curvature` times the smaller share. Either item may have the smaller
    share, and in each case the bound is a sum of one term per item: a pair with a negative sum in
    both cases has a JS below the best.

    Args:
        bounds: (B, 2); infinite bounds yield no pairs.
        e: Value of the variable for each item, (B, N).
        mask: Items that attention may reach, (B, N) bool.
        single_js: JS of all attention on each item, (B, N).
        curvature: Least difference, over pairs with the item, between the sum of JS at both items
            and twice JS halfway between them, (B, N).
        best: JS of the best vertex so far, (B,); the caller updates it between pieces.

    Yields:
        Bounds (E,), from 0 to 2 B - 1, items below (E,) and items above (E,); None: all are usable.
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
        scores = (single_js[:, None] + off, inverse + off, off - inverse)
        values, items = torch.stack(scores, dim=2).flatten(0, 1).max(-1)
        candidates += [items, values.isfinite()]
    i, below_usable, j, above_usable = candidates
    bound, first, second = (
        (below_usable[:, :, None] & above_usable[:, None, :]).nonzero().unbind(-1)
    )
    yield bound, i[bound, first], j[bound, second], None
    excess = single_js - best[:, None]
    curved = excess - curvature
    # Terms (4 B, N) of items below and above; the pairs whose sum is above 0.
    below = (torch.stack([curved, excess])[:, :, None] * inverse + not_below).flatten(0, 2)
    above = (torch.stack([excess, curved])[:, :, None] * inverse + not_above).flatten(0, 2)
    below_candidates = below + above.amax(-1, keepdim=True) > 0
    above_candidates = above + below.amax(-1, keepdim=True) > 0
    rows, i = below_candidates.nonzero().unbind(-1)
    j, counts = above_candidates.nonzero()[:, 1], above_candidates.sum(-1)
    starts, counts = (counts.cumsum(0) - counts)[rows], counts[rows]
    lower, upper = below[rows, i], above[above_candidates]
    for part in torch.split(torch.arange(len(rows), device=e.device), max(1, _PAIRS // e.shape[1])):
        entry = part.repeat_interleave(counts[part])
        before = starts[part] - counts[part].cumsum(0) + counts[part]
        place = before.repeat_interleave(counts[part])
        place += torch.arange(len(place), device=e.device)
        above_bound = (lower[entry] + upper[place] > 0).nonzero().squeeze(-1)
        entry = entry[above_bound]
        yield rows[entry].remainder(bounds.numel()), i[entry], j[place[above_bound]], None


def _shares(
    bounds: Tensor, e: Tensor, bound: Tensor, i: Tensor, j: Tensor
) -> tuple[Tensor, Tensor]:
    """Shares (E,) of items i below and j above for which the mean is one of the bounds (B, 2)."""
    row, value = bound // 2, bounds.flatten()[bound]
    below, above = (value - e[row, i]).abs(), (value - e[row, j]).abs()
    return above / (below + above), below / (below + above)
