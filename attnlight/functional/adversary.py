"""Attention as different as possible from the model's own while the prediction stays put.

With several heads each is taken by itself, the others held as they are: item logits then have the
other heads' logits added, which is exact. All results are float64: rounding an adversary to
float32 can move its prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import torch
from torch import Tensor

from attnlight.errors import InputError
from attnlight.functional.divergence import js_divergence, total_variation
from attnlight.functional.draws import draw_keys
from attnlight.functional.edges import best_on_edges, log_ratio_bounds
from attnlight.functional.masking import masked_softmax
from attnlight.functional.readout import read
from attnlight.functional.slab import furthest_in_slab, js_from

# What rounding may add to the distance between predictions at a vertex.
_ROUNDING = 1e-12


def worst_case_attention(
    weights: Tensor,
    item_logits: Tensor,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of largest JS from the model's own that moves the prediction by <= epsilon.

    The question of Jain and Wallace (2019), section 4.2.2. For two classes the answer is exact: the
    probability depends on the mean of one number over items, and JS, being convex, is largest at a
    vertex of the attentions that keep it in bounds. For more classes the adversary is the best of
    attentions on one item, on two items, `found`, and the vertices that `upper` comes from; `upper`
    bounds every adversary: the least, over pairs of classes, of the exact answer when the log ratio
    of that pair alone must stay in the bounds that epsilon implies.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions, above 0.
        found: Attention found otherwise, such as by `search_adversary`, in the shape of `weights`;
            with more than two classes it is the adversary where nothing better is found.

    Returns:
        Adversary (B, N), or (B, H, N); its JS in nats, (B,), or (B, H); and `upper`, the same as JS
        for two classes. All float64; JS and `upper` are NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    if not epsilon > 0:
        raise InputError(f"epsilon is {epsilon}, but must be above 0")
    own, items, rows = _by_head(weights, item_logits, mask)
    own_logits = read(own, items)
    broken = ~own_logits.isfinite().all(-1)
    items = items.masked_fill(broken[:, None, None], 0.0)
    if items.shape[-1] == 2:
        adversary = _furthest(own, items, rows, epsilon, (1, 0))
        js = upper = js_from(own, adversary)
    else:
        others = [] if found is None else [found.double().reshape(own.shape)]
        adversary, js, upper = _several_classes(own, items, rows, epsilon, others)
    js, upper = (js.masked_fill(broken, math.nan) for js in (js, upper))
    shape = weights.shape[:-1]
    return adversary.reshape(weights.shape), js.reshape(shape), upper.reshape(shape)


def search_adversary(
    weights: Tensor,
    item_logits: Tensor,
    mask: Tensor,
    epsilon: float,
    rows: Tensor,
    *,
    seed: int = 0,
    starts: int = 5,
    steps: int = 500,
    learning_rate: float = 0.01,
    amsgrad: bool = True,
    penalty: float = 500.0,
    search_epsilon: float | None = None,
    start_scale: float = 3.0,
    spread: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The most different attention that Jain and Wallace's gradient search finds.

    Jain and Wallace (2019), section 4.2.2, with the constants of their released code: Adam on the
    scores of several attentions at once ascends their JS from the model's own, less `penalty` times
    the excess of the distance between predictions over `search_epsilon`, plus `spread` times the
    mean JS between them. The best that keeps to `epsilon` at the end is returned, or the model's
    own if none does. An instance's draws depend on the seed, its row and its length alone.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions of what is returned.
        rows: Dataset index and position of each row, (B, 2) long.
        seed: Any integer.
        starts: Number of attentions K.
        steps: Number of steps of Adam.
        learning_rate: That of Adam.
        amsgrad: Whether Adam uses the largest second moment so far.
        penalty: Weight of the excess.
        search_epsilon: Distance above which the excess counts, `epsilon` if None.
        start_scale: Standard deviation of the normal scores at the start.
        spread: Weight of the mean JS between the attentions of an instance.

    Returns:
        Adversary (B, N), or (B, H, N), and its JS in nats, (B,), or (B, H). All float64.
    """
    own, items, reach = _by_head(weights, item_logits, mask)
    heads = len(own) // max(len(rows), 1)
    scores = start_scale * _normal(seed, rows, heads, starts, reach)
    base = read(own, items).softmax(-1)
    limit = epsilon if search_epsilon is None else search_epsilon
    first, second = torch.triu_indices(starts, starts, 1, device=own.device)
    with torch.enable_grad():
        scores.requires_grad_()
        optimizer = torch.optim.Adam([scores], lr=learning_rate, amsgrad=amsgrad)
        for _ in range(steps):
            attentions = masked_softmax(scores, reach)
            moved = total_variation(read(attentions, items).softmax(-1), base[:, None])
            gain = js_divergence(attentions, own[:, None]) - penalty * (moved - limit).relu()
            between = 2 * js_divergence(attentions[:, first], attentions[:, second]) / starts**2
            loss = -gain.sum() - spread * between.sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    found = masked_softmax(scores.detach(), reach)
    adversary, js = _best_of(own, items, epsilon, found.unbind(1))
    return adversary.reshape(weights.shape), js.reshape(weights.shape[:-1])


def _by_head(weights: Tensor, item_logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads as rows: weights (R, N), item logits (R, N, C) float64 and mask (R, N)."""
    if weights.ndim == 2:
        weights, item_logits = weights.unsqueeze(1), item_logits.unsqueeze(1)
    reach = mask.unsqueeze(1).expand(weights.shape)
    own = weights.detach().double().masked_fill(~reach, 0.0)
    own = own / own.sum(-1, keepdim=True).clamp(min=torch.finfo(own.dtype).tiny)
    items = item_logits.detach().double().masked_fill(~reach.unsqueeze(-1), 0.0)
    logits = (own.unsqueeze(-1) * items).sum(2)
    items = items + (logits.sum(1, keepdim=True) - logits).unsqueeze(2)
    return own.flatten(0, 1), items.flatten(0, 1), reach.flatten(0, 1)


def _furthest(
    own: Tensor, items: Tensor, mask: Tensor, epsilon: float, pair: tuple[int, int]
) -> Tensor:
    """The attention (R, N) furthest from `own` with the log ratio of two classes in bounds."""
    c, d = pair
    prediction = read(own, items).softmax(-1)
    low, high = log_ratio_bounds(prediction[:, c], prediction[:, d], epsilon)
    return furthest_in_slab(own, items[..., c] - items[..., d], low, high, mask)


def _several_classes(
    own: Tensor, items: Tensor, mask: Tensor, epsilon: float, found: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The best adversary (R, N) that is found, its JS (R,) and an upper bound (R,)."""
    pairs = combinations(range(items.shape[-1]), 2)
    vertices = [_furthest(own, items, mask, epsilon, pair) for pair in pairs]
    upper = torch.stack([js_from(own, vertex) for vertex in vertices]).amin(0)
    adversary, js = _best_of(own, items, epsilon, [*found, *vertices])
    edge, edge_js = best_on_edges(own, items, mask, epsilon, js)
    adversary = torch.where((edge_js > js)[:, None], edge, adversary)
    return adversary, edge_js, torch.maximum(upper, edge_js)


def _best_of(
    own: Tensor, items: Tensor, epsilon: float, attentions: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """The one of `own` and attentions (R, N) with the largest JS that keeps the prediction."""
    prediction = read(own, items).softmax(-1)
    best, best_js = own, torch.zeros_like(own[:, 0])
    for attention in attentions:
        moved = total_variation(read(attention, items).softmax(-1), prediction)
        js = js_from(own, attention)
        better = (moved <= epsilon + _ROUNDING) & (js > best_js)
        best = torch.where(better[:, None], attention, best)
        best_js = torch.where(better, js, best_js)
    return best, best_js


def _normal(seed: int, rows: Tensor, heads: int, starts: int, mask: Tensor) -> Tensor:
    """Standard normal numbers (R, K, N), of each row's items in order, heads as rows."""
    keys = draw_keys(seed, rows[:, 0], rows[:, 1], heads * starts, mask.shape[1])
    uniform = ((keys >> 11).double() + (0.5 + 2**52)) / 2**53
    normal: Tensor = torch.special.ndtri(uniform).unflatten(1, (heads, starts)).flatten(0, 1)
    ordinals = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return normal.gather(-1, ordinals.unsqueeze(1).expand_as(normal))
