"""Different attention with the same prediction where the readout is not affine: by trying.

Nothing is exact here. What is found is a lower bound of what there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.functional.adversary import require_positive
from attnlight.functional.candidates import Readout
from attnlight.functional.divergence import total_variation
from attnlight.functional.edges import bisect
from attnlight.functional.heads import head_readout, own_attention
from attnlight.functional.rankings import ranking
from attnlight.functional.slab import js_from, one_item_js, two_item_js

# Attention weights that are read at once, 8 MiB in single precision; items of a kind that are
# paired; halvings of an interval.
_WEIGHTS, _ITEMS, _HALVINGS = 1 << 21, 4, 16


def blackbox_adversary(
    weights: Tensor,
    readout: Readout,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The most different attention among some that move the prediction by at most epsilon.

    Tried are, as far as the prediction stays: all attention on each item; the way from the model's
    own attention to each of the four items of nearest prediction; the way from it, and from each of
    the four lightest items that keep the prediction, to each of the four lightest items; and
    mixtures of one of the four lightest items that make the predicted class less likely with one
    of the four that make it more likely, outward from where its probability is the model's own.
    The ends of all these ways are found by bisection.

    Args:
        weights: The model's attention (B, N), or (B, H, N). Each head is taken by itself, the
            others held.
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions, above 0.
        found: Attention that is known to keep the prediction, such as from `search_adversary`, in
            the shape of `weights`.

    Returns:
        Adversary (B, N), or (B, H, N), float64, the model's own where nothing is found, and its JS
        in nats, (B,), or (B, H), float64; NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    require_positive(epsilon)
    own, reach = own_attention(weights, mask)
    read = head_readout(readout, weights)
    box = _Box(lambda attentions: read(attentions).softmax(-1), own, reach, epsilon)
    prediction = box.predict(own.unsqueeze(1))
    alone = _predictions_alone(box)
    best, js = own, torch.zeros_like(own[:, 0])
    tried = [] if found is None else [found.double().reshape(own.shape)]
    tried += [attempt(box, prediction, alone) for attempt in (_one_item, _towards_one, _two_items)]
    for attention in tried:
        further = js_from(own, attention)
        best = torch.where((further > js)[:, None], attention, best)
        js = torch.maximum(js, further)
    js = js.masked_fill(~prediction.isfinite().all(-1).squeeze(1), math.nan)
    return best.reshape(weights.shape), js.reshape(weights.shape[:-1])


@dataclass(frozen=True)
class _Box:
    """What can be asked about R rows of N items.

    Attributes:
        predict: From attentions (R, K, N) to probabilities (R, K, C).
        own: The model's attention, (R, N).
        reach: What it may reach, (R, N).
        epsilon: Largest distance between predictions.
    """

    predict: Callable[[Tensor], Tensor]
    own: Tensor
    reach: Tensor
    epsilon: float


def _predictions_alone(box: _Box) -> Tensor:
    """Probabilities (R, N, C) with all attention on each item."""
    items = box.own.shape[1]
    one = torch.eye(items, dtype=box.own.dtype, device=box.own.device)
    size = max(1, _WEIGHTS // max(1, box.own.numel()))
    blocks = torch.split(one, size)
    parts = [box.predict(block.expand(len(box.own), -1, -1)) for block in blocks]
    return torch.cat(parts, dim=1)


def _one_item(box: _Box, prediction: Tensor, alone: Tensor) -> Tensor:
    """All attention (R, N) on the item of least weight that keeps the prediction, or `own`."""
    kept = box.reach & (total_variation(alone, prediction) <= box.epsilon)
    js, item = one_item_js(box.own).masked_fill(~kept, -1.0).max(-1)
    one = torch.zeros_like(box.own).scatter(1, item[:, None], 1.0)
    return torch.where((js >= 0)[:, None], one, box.own)


def _towards_one(box: _Box, prediction: Tensor, alone: Tensor) -> Tensor:
    """The furthest (R, N) on the way from attention that keeps the prediction to an item."""
    distance = total_variation(alone, prediction)
    nearest = ranking(-distance, box.reach)[:, :_ITEMS]
    near = _ones(box, nearest, box.reach.gather(1, nearest))
    light = _ones(box, *_lightest(box, box.reach))
    own = box.own.unsqueeze(1)
    keeping = torch.cat([own, _ones(box, *_lightest(box, distance <= box.epsilon))], dim=1)
    starts = torch.cat(
        [own.expand_as(near), keeping.repeat_interleave(light.shape[1], dim=1)], dim=1
    )
    ends = torch.cat([near, light.repeat(1, keeping.shape[1], 1)], dim=1)

    def moved(share: Tensor) -> Tensor:
        mixed = torch.lerp(starts, ends, share.unsqueeze(-1))
        return total_variation(box.predict(mixed), prediction)

    none = torch.zeros_like(starts[..., 0])
    share = bisect(lambda s: moved(s) > box.epsilon, none, torch.ones_like(none), _HALVINGS)
    mixed = torch.lerp(starts, ends, share.unsqueeze(-1))
    best = js_from(own, mixed).argmax(-1)
    return mixed[torch.arange(len(mixed), device=mixed.device), best]


def _two_items(box: _Box, prediction: Tensor, alone: Tensor) -> Tensor:
    """The furthest of mixtures (R, N) of two items that keeps the prediction, or `own`."""
    winner = prediction.argmax(-1, keepdim=True)
    level = prediction.gather(-1, winner).squeeze(-1)  # (R, 1)
    lead = alone.gather(-1, winner.expand(-1, alone.shape[1], -1)).squeeze(-1) - level
    i, below = _lightest(box, lead < 0)
    j, above = _lightest(box, lead > 0)
    real = (below[:, :, None] & above[:, None, :]).flatten(1)
    count = i.shape[1]
    i, j = i.repeat_interleave(count, dim=1), j.repeat(1, count)

    def predict(share: Tensor) -> Tensor:
        times = share.shape[1] // i.shape[1]
        mixed = torch.zeros(*share.shape, box.own.shape[1], dtype=share.dtype, device=share.device)
        mixed.scatter_(-1, i.repeat(1, times).unsqueeze(-1), (1 - share).unsqueeze(-1))
        mixed.scatter_add_(-1, j.repeat(1, times).unsqueeze(-1), share.unsqueeze(-1))
        return box.predict(mixed)

    def likelier(share: Tensor) -> Tensor:
        found = predict(share)
        place = winner.expand(-1, found.shape[1], -1)
        return found.gather(-1, place).squeeze(-1) > level

    def moved(share: Tensor) -> Tensor:
        return total_variation(predict(share), prediction)

    start = torch.zeros_like(i, dtype=box.own.dtype)
    crossing = bisect(likelier, start, torch.ones_like(start), _HALVINGS)
    real &= moved(crossing) <= box.epsilon
    ends = torch.cat([start, torch.ones_like(start)], dim=1)
    share = bisect(lambda s: moved(s) > box.epsilon, crossing.repeat(1, 2), ends, _HALVINGS)
    return _furthest_mixture(box, i.repeat(1, 2), j.repeat(1, 2), share, real.repeat(1, 2))


def _furthest_mixture(box: _Box, i: Tensor, j: Tensor, share: Tensor, real: Tensor) -> Tensor:
    """The furthest (R, N) of mixtures with shares (R, E) on items j and the rest on items i."""
    own = (box.own.gather(1, i), box.own.gather(1, j))
    js, best = two_item_js((1 - share, share), own).masked_fill(~real, -1.0).max(-1, keepdim=True)
    i, j, share = (values.gather(1, best) for values in (i, j, share))
    mixed = torch.zeros_like(box.own).scatter(1, i, 1 - share).scatter_add(1, j, share)
    return torch.where(js >= 0, mixed, box.own)


def _ones(box: _Box, items: Tensor, real: Tensor) -> Tensor:
    """All attention (R, K, N) on each of items (R, K); `own` for those that are not real."""
    one = torch.zeros(*items.shape, box.own.shape[1], dtype=box.own.dtype, device=items.device)
    one.scatter_(-1, items.unsqueeze(-1), 1.0)
    return torch.where(real.unsqueeze(-1), one, box.own.unsqueeze(1))


def _lightest(box: _Box, side: Tensor) -> tuple[Tensor, Tensor]:
    """Up to four items (R, 4) of least weight on a side (R, N), and whether there are so many."""
    side = side & box.reach
    order = ranking(-box.own, side)[:, :_ITEMS]
    return order, side.gather(1, order)
