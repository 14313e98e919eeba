"""Attentions on one or two items that leave the prediction of several classes in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.functional.divergence import total_variation
from attnlight.functional.slab import one_item_js, two_item_js

# Pairs of items screened, and edges searched, at once.
_PAIRS, _EDGES = 1 << 20, 1 << 13
# Points sampled on an edge, and halvings of an interval.
_SAMPLES, _HALVINGS = 16, 45


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
        shares = _ends_of_feasible(chosen, item_logits, prediction, epsilon)
        js, side = _js(weights, chosen, shares).nan_to_num(nan=-1.0).max(-1)
        top = best.scatter_reduce(0, chosen.row, js, "amax")
        hits = (js == top[chosen.row]) & (js > best[chosen.row])
        for edge in hits.nonzero().flatten().tolist():
            row, i, j = (places[edge] for places in chosen[:3])
            attention[row] = 0.0
            attention[row, i], attention[row, j] = (
                1 - shares[edge, side[edge]],
                shares[edge, side[edge]],
            )
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
    batch, items = mask.shape
    size = max(1, _PAIRS // (items * items))
    found = []
    for first in range(0, max(batch, 1), size):
        block = slice(first, first + size)
        start, end = _kept(item_logits[block], prediction[block], epsilon)
        pairs = (mask[block, :, None] & mask[block, None, :]).triu(1)
        chord_start = torch.lerp(alone[block, :, None], alone[block, None, :], start)
        chord_end = torch.lerp(alone[block, :, None], alone[block, None, :], end)
        higher = torch.maximum(chord_start, chord_end) > best[block, None, None]
        rows, i, j = (pairs & (start <= end) & higher).nonzero().unbind(-1)
        found.append((rows + first, i, j, start[rows, i, j], end[rows, i, j]))
    return _Edges(*(torch.cat(columns) for columns in zip(*found, strict=True)))


def _kept(item_logits: Tensor, prediction: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """First and last share (B, N, N) of item j on the edge to it from item i."""
    winner = prediction.argmax(-1, keepdim=True)
    rivals = torch.arange(prediction.shape[-1] - 1, device=winner.device)
    rivals = rivals + (rivals >= winner)  # (B, C - 1)
    own = item_logits.gather(-1, winner.unsqueeze(1).expand(-1, item_logits.shape[1], -1))
    others = item_logits.gather(-1, rivals.unsqueeze(1).expand(-1, item_logits.shape[1], -1))
    lows, highs = log_ratio_bounds(
        prediction.gather(-1, winner), prediction.gather(-1, rivals), epsilon
    )
    start = own.new_zeros(*own.shape[:2], own.shape[1])
    end = torch.ones_like(start)
    for lead, low, high in zip(
        (own - others).unbind(-1), lows.unbind(-1), highs.unbind(-1), strict=True
    ):
        slope = lead[:, None, :] - lead[:, :, None]
        # A slope of 0 gives infinities of the right signs.
        one, other = ((end_[:, None] - lead)[..., None] / slope for end_ in (low, high))
        start = torch.maximum(start, torch.minimum(one, other))
        end = torch.minimum(end, torch.maximum(one, other))
    return start, end


def _ends_of_feasible(
    edges: _Edges, item_logits: Tensor, prediction: Tensor, epsilon: float
) -> Tensor:
    """First and last share (E, 2) of item j found to keep the prediction, NaN where none is."""
    origin = item_logits[edges.row, edges.i]
    step = item_logits[edges.row, edges.j] - origin
    prediction, start, end = prediction[edges.row], edges.start[:, None], edges.end[:, None]

    def predicted(share: Tensor) -> Tensor:
        return (origin[:, None] + share.unsqueeze(-1) * step[:, None]).softmax(-1)

    def moved(share: Tensor) -> Tensor:
        return total_variation(predicted(share), prediction[:, None])

    def rising(share: Tensor) -> Tensor:
        return ((predicted(share) - prediction[:, None]) * step[:, None]).sum(-1) > 0

    least = bisect(rising, start, end, _HALVINGS)
    grid = torch.linspace(0, 1, _SAMPLES, dtype=start.dtype, device=start.device)
    points = torch.lerp(start, end, grid)
    points = torch.cat([points, least], dim=-1).sort(-1).values
    kept = moved(points) <= epsilon
    places = torch.arange(points.shape[-1], device=points.device)
    first = torch.where(kept, places, points.shape[-1] - 1).amin(-1, keepdim=True)
    last = torch.where(kept, places, 0).amax(-1, keepdim=True)
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=len(places) - 1)], dim=-1)
    inner = torch.cat([first, last], dim=-1)
    outside = points.gather(-1, outer)
    outside_kept = kept.gather(-1, outer)
    start = points.gather(-1, inner)
    edge = bisect(lambda share: moved(share) > epsilon, start, outside, _HALVINGS)
    ends = torch.where(outside_kept, outside, edge)
    return ends.masked_fill(~kept.any(-1, keepdim=True), math.nan)


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
