"""Attentions on one or two items that preserve the prediction of several classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.functional._cpu import best_of_each
from attnlight.functional.adversary.exact import one_item_js, two_item_js
from attnlight.functional.divergence import total_variation

# Pairs of items screened, and mixtures searched, at once.
_PAIRS, _MIXTURES = 1 << 20, 1 << 13
# Points sampled per pair of items, and bisections of an interval.
_SAMPLES, _HALVINGS = 16, 45
# Number of most probable rivals of the predicted class, whose log ratios are checked first.
_TOP_RIVALS = 2
# Bisections between two checks of which sides can still exceed the best.
_CHECK_EVERY = 5


def best_two_item_mixture(
    weights: Tensor, item_logits: Tensor, mask: Tensor, epsilon: float, least: Tensor
) -> tuple[Tensor, Tensor]:
    """Attentions on one or two items with a JS above `least` that preserve the prediction.

    The feasible mixtures of two items may form two intervals. KL from the prediction is convex
    along the segment between both items: equally spaced points, or the minimum where none of them
    is feasible, are the start of bisections outward from the first and the last feasible point. The
    result is a lower bound of the maximum. Arguments are those of `linear_program_attention`, and the
    JS to exceed, `least` (B,).

    Returns:
        Attention (B, N) and its JS (B,); zeros and `least` where no attention exceeds it.
    """
    prediction = (weights.unsqueeze(-1) * item_logits).sum(1).softmax(-1)
    single_js = one_item_js(weights)
    distance = total_variation(item_logits.softmax(-1), prediction.unsqueeze(1))
    best_single, item = single_js.masked_fill(~(mask & (distance <= epsilon)), -1.0).max(-1)
    better = best_single > least
    best = torch.where(better, best_single, least)
    attention = torch.zeros_like(weights).scatter_(1, item[:, None], better[:, None].double())
    row, i, j, start, end = _screen(item_logits, prediction, mask, epsilon, single_js, best)
    bound = _js(weights, row, i, j, torch.stack([start, end], dim=-1)).amax(-1)
    order = bound.argsort(descending=True, stable=True)
    for begin in range(0, len(order), _MIXTURES):
        block = order[begin : begin + _MIXTURES]
        block = block[bound[block] > best[row[block]]]
        origin = item_logits[row[block], i[block]]
        step = item_logits[row[block], j[block]] - origin
        ends, original = (start[block], end[block]), prediction[row[block]]
        mixtures = _Mixtures(row[block], i[block], j[block], *ends, origin, step, original)
        sides = _bisect_outward(weights, _feasible_sides(mixtures, epsilon), best, epsilon)
        js = _js(weights, *sides[:3], sides.start[:, None]).squeeze(-1)
        winners, best = best_of_each(sides.row, js, best)
        improved, share = sides.row[winners], sides.start[winners]
        attention[improved] = 0.0
        attention[improved, sides.i[winners]] = 1 - share
        attention[improved, sides.j[winners]] = share
    return attention, best


class _Mixtures(NamedTuple):
    """Mixtures of E pairs of items i and j of a row, or intervals of them.

    `start` and `end` are the shares of item j at the ends of the interval; of a side, a feasible one and
    one that may be infeasible. `origin` (E, C) are the logits at item i, `step` those at item j less
    these, `original` the model's prediction.
    """

    row: Tensor
    i: Tensor
    j: Tensor
    start: Tensor
    end: Tensor
    origin: Tensor
    step: Tensor
    original: Tensor

    def take(self, numbers: Tensor) -> _Mixtures:
        """The mixtures with the given numbers."""
        return _Mixtures(*(column[numbers] for column in self))

    def distance(self, share: Tensor) -> Tensor:
        """Total variation distance (E, S) of the prediction at shares (E, S) of item j."""
        logits = self.origin[:, None] + share.unsqueeze(-1) * self.step[:, None]
        return total_variation(logits.softmax(-1), self.original[:, None])


def _js(weights: Tensor, row: Tensor, i: Tensor, j: Tensor, share: Tensor) -> Tensor:
    """JS (E, S) of attention with shares (E, S) on items j (E,) and the rest on items i (E,)."""
    return two_item_js((1 - share, share), (weights[row, i, None], weights[row, j, None]))


def log_ratio_bounds(p: Tensor, q: Tensor, epsilon: float | Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest log(p / q) of predictions within epsilon of one with p and q."""
    low = (p - epsilon).clamp(min=0).log() - (q + epsilon).log()
    high = (p + epsilon).log() - (q - epsilon).clamp(min=0).log()
    return low, high


def _screen(
    item_logits: Tensor,
    prediction: Tensor,
    mask: Tensor,
    epsilon: float,
    single_js: Tensor,
    best: Tensor,
) -> tuple[Tensor, ...]:
    """Row, i, j, start and end (E,) of the intervals of mixtures that may preserve the prediction.

    Intervals on which no JS can exceed `best` are dropped. Total variation within epsilon bounds
    the log ratio of the winning class to every other one, which is linear in the share.
    """
    # The winner's lead over rivals for each item (B, N, C - 1), most probable rivals first.
    ranked = prediction.argsort(dim=-1, descending=True, stable=True)
    p = prediction.gather(-1, ranked)
    low, high = log_ratio_bounds(p[:, :1], p[:, 1:], epsilon)
    logits = item_logits.gather(-1, ranked.unsqueeze(1).expand_as(item_logits))
    lead = logits[..., :1] - logits[..., 1:]
    batch, items = mask.shape
    size = max(1, _PAIRS // (items * items))
    screened = []
    for first in range(0, max(batch, 1), size):
        block = slice(first, first + size)
        # JS is convex, so a mixture's is at most the larger of both items'.
        item_exceeds = mask[block] & (single_js[block] > best[block, None])
        pairs = (mask[block, :, None] & mask[block, None, :]).triu(1)
        pairs &= item_exceeds[:, :, None] | item_exceeds[:, None, :]
        for part in torch.split(pairs.nonzero(), max(1, _PAIRS // lead.shape[-1])):
            row, i, j = part.unbind(-1)
            row = row + first
            # Few pairs satisfy the bounds for the top rivals: only these are checked for all.
            for rivals in (slice(0, _TOP_RIVALS), slice(None)):
                first_lead, second_lead = lead[row, i, rivals], lead[row, j, rivals]
                bounds = torch.stack([low[row, rivals], high[row, rivals]])
                # A slope of 0 gives infinities with the correct signs.
                shares = (bounds - first_lead) / (second_lead - first_lead)
                start = shares.amin(0).amax(-1).clamp(min=0.0)
                end = shares.amax(0).amin(-1).clamp(max=1.0)
                row, i, j, start, end = (x[start <= end] for x in (row, i, j, start, end))
            ends = torch.stack([start, end], dim=-1)
            chord = torch.lerp(single_js[row, i, None], single_js[row, j, None], ends).amax(-1)
            above_best = chord > best[row]
            screened.append(tuple(column[above_best] for column in (row, i, j, start, end)))
    return tuple(torch.cat(columns) for columns in zip(*screened, strict=True))


def _feasible_sides(mixtures: _Mixtures, epsilon: float) -> _Mixtures:
    """Both sides of each interval with a feasible point, sampled or of least KL."""
    grid = torch.linspace(0, 1, _SAMPLES, dtype=mixtures.start.dtype, device=mixtures.start.device)
    points = torch.lerp(mixtures.start[:, None], mixtures.end[:, None], grid)
    feasible = mixtures.distance(points) <= epsilon
    places = torch.arange(_SAMPLES, device=points.device)
    first = torch.where(feasible, places, _SAMPLES - 1).amin(-1, keepdim=True)
    last = torch.where(feasible, places, 0).amax(-1, keepdim=True)
    inside = points.gather(-1, torch.cat([first, last], dim=-1))
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=_SAMPLES - 1)], dim=-1)
    outside = points.gather(-1, outer)
    unsampled = (~feasible.any(-1)).nonzero().squeeze(-1)
    # Where no sample is feasible, the point of least KL may be: KL increases from there.
    remaining = mixtures.take(unsampled)
    lower, upper = remaining.start[:, None], remaining.end[:, None]
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        prediction = (remaining.origin + middle * remaining.step).softmax(-1)
        slope = ((prediction - remaining.original) * remaining.step).sum(-1, keepdim=True)
        lower, upper = torch.where(slope > 0, lower, middle), torch.where(slope > 0, middle, upper)
    next_ = torch.searchsorted(points[unsampled].contiguous(), lower).clamp(1, _SAMPLES - 1)
    inside[unsampled] = lower.expand(-1, 2)
    outside[unsampled] = points[unsampled].gather(-1, torch.cat([next_ - 1, next_], dim=-1))
    nonempty = feasible.any(-1)
    nonempty[unsampled] = (remaining.distance(lower) <= epsilon).squeeze(-1)
    inside, outside = (shares[nonempty].T.reshape(-1) for shares in (inside, outside))
    sides = mixtures.take(nonempty.nonzero().squeeze(-1).repeat(2))
    return sides._replace(start=inside, end=outside)


def _bisect_outward(weights: Tensor, sides: _Mixtures, best: Tensor, epsilon: float) -> _Mixtures:
    """Sides whose JS may exceed best (B,), each bisected to start at its last feasible share.

    JS is convex in the share, so on a side it is at most the larger of the values at its ends.
    """
    for turn in range(_HALVINGS + 1):
        if turn % _CHECK_EVERY == 0:
            start_js, end_js = (
                _js(weights, *sides[:3], share[:, None]).squeeze(-1)
                for share in (sides.start, sides.end)
            )
            best_so_far = best.scatter_reduce(0, sides.row, start_js, "amax")[sides.row]
            # The side that attains the best so far stays.
            promising = (end_js > best_so_far) | (
                (start_js == best_so_far) & (start_js > best[sides.row])
            )
            sides = sides.take(promising.nonzero().squeeze(-1))
        if turn == _HALVINGS:
            break
        if turn == 0:
            feasible = sides.distance(sides.end[:, None]).squeeze(-1) <= epsilon
            sides = sides._replace(start=torch.where(feasible, sides.end, sides.start))
        middle = (sides.start + sides.end) / 2
        infeasible = sides.distance(middle[:, None]).squeeze(-1) > epsilon
        start = torch.where(infeasible, sides.start, middle)
        sides = sides._replace(start=start, end=torch.where(infeasible, middle, sides.end))
    return sides
