"""Attentions on one or two items that leave the prediction of several classes in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.functional._cpu import first_of_each
from attnlight.functional.adversary.exact import one_item_js, two_item_js
from attnlight.functional.divergence import total_variation

# Pairs of items screened, and edges searched, at once.
_PAIRS, _EDGES = 1 << 20, 1 << 13
# Points sampled on an edge, and halvings of an interval.
_SAMPLES, _HALVINGS = 16, 45
# Rivals of the predicted class that edges are held to first.
_LIKELIEST = 2
# Halvings between two looks at which edges are still worth one.
_LOOKS = 5


def best_on_edges(
    weights: Tensor, item_logits: Tensor, mask: Tensor, epsilon: float, least: Tensor
) -> tuple[Tensor, Tensor]:
    """Attentions on one or two items with a JS above `least` that keep the prediction.

    The part of an edge that keeps it may be two intervals. KL from the prediction is convex along
    the edge: its minimum and equally spaced points are tried, and bisection goes outward from the
    first and the last that keep the prediction. A lower bound of the best, then.

    Args:
        weights: (B, N) float64, summing to 1, 0 off the mask.
        item_logits: (B, N, C) float64, finite.
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions.
        least: JS to exceed, (B,).

    Returns:
        Attention (B, N) and its JS (B,); zeros and `least` where none exceeds it.
    """
    prediction = (weights.unsqueeze(-1) * item_logits).sum(1).softmax(-1)
    alone = one_item_js(weights)
    moved = total_variation(item_logits.softmax(-1), prediction.unsqueeze(1))
    single, item = alone.masked_fill(~(mask & (moved <= epsilon)), -1.0).max(-1)
    better = single > least
    best = torch.where(better, single, least)
    attention = torch.zeros_like(weights).scatter_(1, item[:, None], better[:, None].double())
    edges = _screened(item_logits, prediction, mask, epsilon, alone, best)
    ends = torch.stack([edges.start, edges.end], dim=-1)
    bound = _js(weights, edges, ends).amax(-1)
    order = bound.argsort(descending=True, stable=True)
    for begin in range(0, len(order), _EDGES):
        part = order[begin : begin + _EDGES]
        chosen = edges.take(part[bound[part] > best[edges.row[part]]])
        origin = item_logits[chosen.row, chosen.i]
        step = item_logits[chosen.row, chosen.j] - origin
        predict = _Predictions(origin, step, prediction[chosen.row])
        sides = _sides(weights, chosen, predict, epsilon)
        found, share = _outward(weights, sides, best, epsilon)
        js = _js(weights, found.edges, share[:, None]).squeeze(-1)
        top = best.scatter_reduce(0, found.edges.row, js, "amax")
        hits = ((js == top[found.edges.row]) & (js > best[found.edges.row])).nonzero().squeeze(-1)
        hits = hits[first_of_each(found.edges.row[hits])]
        row, i, j = (places[hits] for places in found.edges[:3])
        attention[row] = 0.0
        attention[row, i] = 1 - share[hits]
        attention[row, j] = share[hits]
        best = top
    return attention, best


class _Edges(NamedTuple):
    """E pairs of items i and j of a row, and the first and last share of j to consider, each (E,)."""

    row: Tensor
    i: Tensor
    j: Tensor
    start: Tensor
    end: Tensor

    def take(self, edges: Tensor) -> _Edges:
        """Some of the edges, by their numbers."""
        return _Edges(*(column[edges] for column in self))


def _js(weights: Tensor, edges: _Edges, share: Tensor) -> Tensor:
    """JS (E, S) of attentions with shares (E, S) on item j and the rest on item i."""
    own = (weights[edges.row, edges.i, None], weights[edges.row, edges.j, None])
    return two_item_js((1 - share, share), own)


def log_ratio_bounds(p: Tensor, q: Tensor, epsilon: float | Tensor) -> tuple[Tensor, Tensor]:
    """Least and largest log(p / q) of predictions within epsilon of one with p and q."""
    low = (p - epsilon).clamp(min=0).log() - (q + epsilon).log()
    high = (p + epsilon).log() - (q - epsilon).clamp(min=0).log()
    return low, high


def _screened(
    item_logits: Tensor,
    prediction: Tensor,
    mask: Tensor,
    epsilon: float,
    alone: Tensor,
    best: Tensor,
) -> _Edges:
    """The edges, cut to where they can keep the prediction.

    Those are dropped on which no JS can exceed `best`. Total variation within epsilon bounds the
    log ratio of the winning class to each other one, which is linear along the edge.
    """
    # The winner's lead of each item over rivals (B, N, C - 1), the likeliest first, and its bounds.
    ranked = prediction.argsort(dim=-1, descending=True, stable=True)
    p = prediction.gather(-1, ranked)
    low, high = log_ratio_bounds(p[:, :1], p[:, 1:], epsilon)
    logits = item_logits.gather(-1, ranked.unsqueeze(1).expand_as(item_logits))
    lead = logits[..., :1] - logits[..., 1:]
    batch, items = mask.shape
    size = max(1, _PAIRS // (items * items))
    found = []
    for first in range(0, max(batch, 1), size):
        block = slice(first, first + size)
        # A chord is nowhere above the higher of its ends.
        high_enough = mask[block] & (alone[block] > best[block, None])
        pairs = (mask[block, :, None] & mask[block, None, :]).triu(1)
        pairs &= high_enough[:, :, None] | high_enough[:, None, :]
        for part in torch.split(pairs.nonzero(), max(1, _PAIRS // lead.shape[-1])):
            row, i, j = part.unbind(-1)
            row = row + first
            # Few edges keep the log ratios to the likeliest rivals: only these are held to all.
            for rivals in (slice(0, _LIKELIEST), slice(None)):
                leads = lead[row, i, rivals], lead[row, j, rivals]
                start, end = _kept(*leads, low[row, rivals], high[row, rivals])
                row, i, j, start, end = (x[start <= end] for x in (row, i, j, start, end))
            ends = torch.stack([start, end], dim=-1)
            chord = torch.lerp(alone[row, i, None], alone[row, j, None], ends).amax(-1)
            kept = chord > best[row]
            found.append(tuple(column[kept] for column in (row, i, j, start, end)))
    if not found:
        nothing = best.new_empty(0)
        return _Edges(*(nothing.long(),) * 3, nothing, nothing)
    return _Edges(*(torch.cat(columns) for columns in zip(*found, strict=True)))


def _kept(one: Tensor, other: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """First and last share (E,) of the second item of edges whose items lead by (E, C - 1) each."""
    slope = other - one
    # A slope of 0 gives infinities of the right signs.
    ends = torch.stack([(low - one) / slope, (high - one) / slope])
    return ends.amin(0).amax(-1).clamp(min=0.0), ends.amax(0).amin(-1).clamp(max=1.0)


class _Predictions(NamedTuple):
    """Predictions along E edges: logits (E, C) at item i, their change to item j, the model's own."""

    origin: Tensor
    step: Tensor
    own: Tensor

    def take(self, edges: Tensor) -> _Predictions:
        """Those on some of the edges, by their numbers."""
        return _Predictions(*(column[edges] for column in self))

    def at(self, share: Tensor) -> Tensor:
        """Probabilities (E, S, C) at shares (E, S) of item j."""
        return (self.origin[:, None] + share.unsqueeze(-1) * self.step[:, None]).softmax(-1)

    def moved(self, share: Tensor) -> Tensor:
        """How far the prediction moves, (E, S)."""
        return total_variation(self.at(share), self.own[:, None])

    def rising(self, share: Tensor) -> Tensor:
        """Whether KL from the own prediction rises with the share, (E, S) bool."""
        return ((self.at(share) - self.own[:, None]) * self.step[:, None]).sum(-1) > 0


class _Sides(NamedTuple):
    """Parts of edges from a share (S,) that keeps the prediction to one (S,) that may not."""

    edges: _Edges
    predict: _Predictions
    inside: Tensor
    outside: Tensor

    def take(self, sides: Tensor) -> _Sides:
        """Some of the sides, by their numbers."""
        inside, outside = self.inside[sides], self.outside[sides]
        return _Sides(self.edges.take(sides), self.predict.take(sides), inside, outside)


def _sides(weights: Tensor, edges: _Edges, predict: _Predictions, epsilon: float) -> _Sides:
    """Both sides of each edge on which some point is found that keeps the prediction."""
    grid = torch.linspace(0, 1, _SAMPLES, dtype=weights.dtype, device=weights.device)
    points = torch.lerp(edges.start[:, None], edges.end[:, None], grid)
    kept = predict.moved(points) <= epsilon
    places = torch.arange(_SAMPLES, device=points.device)
    first = torch.where(kept, places, _SAMPLES - 1).amin(-1, keepdim=True)
    last = torch.where(kept, places, 0).amax(-1, keepdim=True)
    inside = points.gather(-1, torch.cat([first, last], dim=-1))
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=_SAMPLES - 1)], dim=-1)
    outside = points.gather(-1, outer)
    missed = (~kept.any(-1)).nonzero().squeeze(-1)
    # Where no sample keeps it, the least KL is the likeliest to.
    of_missed, ends = predict.take(missed), (edges.start[missed, None], edges.end[missed, None])
    least = bisect(of_missed.rising, *ends, _HALVINGS)
    next_ = torch.searchsorted(points[missed].contiguous(), least).clamp(1, _SAMPLES - 1)
    inside[missed] = least.expand(-1, 2)
    outside[missed] = points[missed].gather(-1, torch.cat([next_ - 1, next_], dim=-1))
    real = kept.any(-1)
    real[missed] = (of_missed.moved(least) <= epsilon).squeeze(-1)
    edge = real.nonzero().squeeze(-1).repeat(2)
    inside, outside = (shares[real].T.reshape(-1) for shares in (inside, outside))
    return _Sides(edges.take(edge), predict.take(edge), inside, outside)


def _outward(weights: Tensor, sides: _Sides, best: Tensor, epsilon: float) -> tuple[_Sides, Tensor]:
    """Sides with a JS that may be above best (B,), and the furthest share (S,) kept on each.

    JS is convex along an edge: on a side it is nowhere above the larger of its ends'.
    """
    for turn in range(_HALVINGS + 1):
        if turn % _LOOKS == 0:
            row = sides.edges.row
            near, far = (
                _js(weights, sides.edges, share[:, None]).squeeze(-1)
                for share in (sides.inside, sides.outside)
            )
            level = best.scatter_reduce(0, row, near, "amax")[row]
            # The best so far itself stays; it may be on this very side.
            hopeful = (far > level) | ((near == level) & (near > best[row]))
            sides = sides.take(hopeful.nonzero().squeeze(-1))
        if turn == _HALVINGS:
            break
        if turn == 0:
            whole = sides.predict.moved(sides.outside[:, None]).squeeze(-1) <= epsilon
            sides = sides._replace(inside=torch.where(whole, sides.outside, sides.inside))
        middle = (sides.inside + sides.outside) / 2
        past = sides.predict.moved(middle[:, None]).squeeze(-1) > epsilon
        inside = torch.where(past, sides.inside, middle)
        sides = sides._replace(inside=inside, outside=torch.where(past, middle, sides.outside))
    return sides, sides.inside


def bisect(
    beyond: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor, halvings: int
) -> Tensor:
    """The share nearest to `outside` at which `beyond` does not hold, if it does not inside."""
    for _ in range(halvings):
        middle = (inside + outside) / 2
        past = beyond(middle)
        outside = torch.where(past, middle, outside)
        inside = torch.where(past, inside, middle)
    return inside
