"""Attentions on one or two items that leave the prediction of several classes in place."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.functional._cpu import best_of_each
from attnlight.functional.adversary.exact import one_item_js, two_item_js
from attnlight.functional.divergence import total_variation

# Pairs of items screened, and edges searched, at once.
_PAIRS, _EDGES = 1 << 20, 1 << 13
# Points sampled on an edge, and halvings of an interval.
_SAMPLES, _HALVINGS = 16, 45
# The likeliest rivals of the predicted class, whose log ratios are checked first.
_LIKELIEST = 2
# Halvings between two checks of which edges may still beat the best.
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
    row, i, j, start, end = _screened(item_logits, prediction, mask, epsilon, alone, best)
    bound = _js(weights, row, i, j, torch.stack([start, end], dim=-1)).amax(-1)
    order = bound.argsort(descending=True, stable=True)
    for begin in range(0, len(order), _EDGES):
        part = order[begin : begin + _EDGES]
        part = part[bound[part] > best[row[part]]]
        origin = item_logits[row[part], i[part]]
        step = item_logits[row[part], j[part]] - origin
        ends, own = (start[part], end[part]), prediction[row[part]]
        edges = _Edges(row[part], i[part], j[part], *ends, origin, step, own)
        sides = _outward(weights, _sides(edges, epsilon), best, epsilon)
        js = _js(weights, *sides[:3], sides.start[:, None]).squeeze(-1)
        hits, best = best_of_each(sides.row, js, best)
        found, share = sides.row[hits], sides.start[hits]
        attention[found] = 0.0
        attention[found, sides.i[hits]] = 1 - share
        attention[found, sides.j[hits]] = share
    return attention, best


class _Edges(NamedTuple):
    """E edges between two items of a row, or parts of them.

    Attributes:
        row: (E,) long.
        i: The item where the edge begins, (E,) long.
        j: The item where it ends, (E,) long.
        start: Share of item j where the part begins, (E,); of a side, one that keeps the prediction.
        end: Share of item j where the part ends, (E,); of a side, one that may not keep it.
        origin: Logits at item i, (E, C).
        step: Their change to item j, (E, C).
        own: The model's prediction, (E, C).
    """

    row: Tensor
    i: Tensor
    j: Tensor
    start: Tensor
    end: Tensor
    origin: Tensor
    step: Tensor
    own: Tensor

    def take(self, edges: Tensor) -> _Edges:
        """Some of the edges, by their numbers."""
        return _Edges(*(column[edges] for column in self))

    def moved(self, share: Tensor) -> Tensor:
        """How far the prediction moves at shares (E, S) of item j, (E, S)."""
        logits = self.origin[:, None] + share.unsqueeze(-1) * self.step[:, None]
        return total_variation(logits.softmax(-1), self.own[:, None])


def _js(weights: Tensor, row: Tensor, i: Tensor, j: Tensor, share: Tensor) -> Tensor:
    """JS (E, S) of attentions with shares (E, S) on items j (E,) and the rest on items i (E,)."""
    return two_item_js((1 - share, share), (weights[row, i, None], weights[row, j, None]))


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
) -> tuple[Tensor, ...]:
    """The edges, cut to where they can keep the prediction: their row, i, j, start and end, (E,).

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
            # Few edges keep the log ratios to the likeliest rivals: only these are checked for all.
            for rivals in (slice(0, _LIKELIEST), slice(None)):
                one, other = lead[row, i, rivals], lead[row, j, rivals]
                bounds = torch.stack([low[row, rivals], high[row, rivals]])
                # A slope of 0 gives infinities of the right signs.
                shares = (bounds - one) / (other - one)
                start = shares.amin(0).amax(-1).clamp(min=0.0)
                end = shares.amax(0).amin(-1).clamp(max=1.0)
                row, i, j, start, end = (x[start <= end] for x in (row, i, j, start, end))
            ends = torch.stack([start, end], dim=-1)
            chord = torch.lerp(alone[row, i, None], alone[row, j, None], ends).amax(-1)
            kept = chord > best[row]
            found.append(tuple(column[kept] for column in (row, i, j, start, end)))
    return tuple(torch.cat(columns) for columns in zip(*found, strict=True))


def _sides(edges: _Edges, epsilon: float) -> _Edges:
    """Both sides of each edge on which some point is found that keeps the prediction."""
    grid = torch.linspace(0, 1, _SAMPLES, dtype=edges.start.dtype, device=edges.start.device)
    points = torch.lerp(edges.start[:, None], edges.end[:, None], grid)
    kept = edges.moved(points) <= epsilon
    places = torch.arange(_SAMPLES, device=points.device)
    first = torch.where(kept, places, _SAMPLES - 1).amin(-1, keepdim=True)
    last = torch.where(kept, places, 0).amax(-1, keepdim=True)
    inside = points.gather(-1, torch.cat([first, last], dim=-1))
    outer = torch.cat([(first - 1).clamp(min=0), (last + 1).clamp(max=_SAMPLES - 1)], dim=-1)
    outside = points.gather(-1, outer)
    missed = (~kept.any(-1)).nonzero().squeeze(-1)
    # Where no sample keeps it, the point of least KL may: the one from which KL rises.
    others = edges.take(missed)
    least, most = others.start[:, None], others.end[:, None]
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        prediction = (others.origin + middle * others.step).softmax(-1)
        slope = ((prediction - others.own) * others.step).sum(-1, keepdim=True)
        least, most = torch.where(slope > 0, least, middle), torch.where(slope > 0, middle, most)
    next_ = torch.searchsorted(points[missed].contiguous(), least).clamp(1, _SAMPLES - 1)
    inside[missed] = least.expand(-1, 2)
    outside[missed] = points[missed].gather(-1, torch.cat([next_ - 1, next_], dim=-1))
    real = kept.any(-1)
    real[missed] = (others.moved(least) <= epsilon).squeeze(-1)
    inside, outside = (shares[real].T.reshape(-1) for shares in (inside, outside))
    both = edges.take(real.nonzero().squeeze(-1).repeat(2))
    return both._replace(start=inside, end=outside)


def _outward(weights: Tensor, sides: _Edges, best: Tensor, epsilon: float) -> _Edges:
    """Sides with a JS that may be above best (B,), each from the last share that is kept on it.

    JS is convex along an edge: on a side it is nowhere above the larger of its ends'.
    """
    for turn in range(_HALVINGS + 1):
        if turn % _LOOKS == 0:
            near, far = (
                _js(weights, *sides[:3], share[:, None]).squeeze(-1)
                for share in (sides.start, sides.end)
            )
            level = best.scatter_reduce(0, sides.row, near, "amax")[sides.row]
            # The best so far itself stays; it may be on this very side.
            above = (far > level) | ((near == level) & (near > best[sides.row]))
            sides = sides.take(above.nonzero().squeeze(-1))
        if turn == _HALVINGS:
            break
        if turn == 0:
            kept = sides.moved(sides.end[:, None]).squeeze(-1) <= epsilon
            sides = sides._replace(start=torch.where(kept, sides.end, sides.start))
        middle = (sides.start + sides.end) / 2
        past = sides.moved(middle[:, None]).squeeze(-1) > epsilon
        start = torch.where(past, sides.start, middle)
        sides = sides._replace(start=start, end=torch.where(past, middle, sides.end))
    return sides
