"""Attention as different as possible from the model's own while the prediction stays put.

With several heads each is taken by itself, the others held as they are: item logits then have the
other heads' logits added, which is exact. All results are float64: rounding an adversary to
float32 can move its prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from attnlight.errors import InputError
from attnlight.functional.adversary.exact import js_from, max_js_attention, one_item_js
from attnlight.functional.adversary.linear_programs import attention_by_programs
from attnlight.functional.adversary.multiclass import best_on_edges, log_ratio_bounds
from attnlight.functional.adversary.upper_bound import bound_by_pairs
from attnlight.functional.divergence import total_variation
from attnlight.functional.readout.affine import read
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits

# What rounding may add to the distance between predictions at a vertex.
_ROUNDING = 1e-12


def worst_case_attention(
    weights: Tensor,
    item_logits: Tensor,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
    programs: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of largest JS from the model's own that moves the prediction by <= epsilon.

    The question of Jain and Wallace (2019), section 4.2.2. For two classes the answer is exact: the
    probability depends on the mean of one number over items, and JS, being convex, is largest at a
    vertex of the attentions that keep it in bounds. For more classes it is exact where the item of
    least weight alone keeps the prediction, since nothing is further than that. Elsewhere the
    adversary is the best of a local maximum that linear programs climb to, attentions on one item
    and on two items, and `found`; `upper` bounds every adversary: the least, over pairs of classes,
    of the exact answer when the log ratio of that pair alone must stay in the bounds that epsilon
    implies.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions, above 0.
        found: Attention found otherwise, such as by `search_adversary`, in the shape of `weights`;
            with more than two classes it is the adversary where nothing better is found.
        programs: With more than two classes, solve the linear programs: some milliseconds for each
            program of each row, up to eight of them.

    Returns:
        Adversary (B, N), or (B, H, N); its JS in nats, (B,), or (B, H); and `upper`, the same as JS
        for two classes. All float64; JS and `upper` are NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    if not epsilon > 0:  # to rounding, no other attention's prediction is equal
        raise InputError(f"epsilon is {epsilon}, but must be above 0")
    own, reach = flatten_heads(weights, mask)
    items = flatten_item_logits(own, item_logits, reach)
    broken = ~read(own, items).isfinite().all(-1)
    items = items.masked_fill(broken[:, None, None], 0.0)
    if items.shape[-1] == 2:
        q, p = read(own, items).softmax(-1).unbind(-1)
        low, high = log_ratio_bounds(p, q, epsilon)
        e = items[..., 1] - items[..., 0]
        adversary, _ = max_js_attention(own, e, low[:, None], high[:, None], reach)
        js = upper = js_from(own, adversary)
    else:
        light = one_item_js(own).masked_fill(~reach, -1.0).argmax(-1, keepdim=True)
        lightest = torch.zeros_like(own).scatter(1, light, 1.0) * reach.any(-1, keepdim=True)
        adversary, js = best_of(lambda a: read(a, items), own, epsilon, [lightest])
        upper = js.clone()
        # No attention is further than the lightest item alone.
        hard = ((js == 0) & reach.any(-1)).nonzero().squeeze(-1)
        if len(hard):
            row = own[hard], items[hard], reach[hard], epsilon
            tried = [] if found is None else [found.double().reshape(own.shape)[hard]]
            tried += [attention_by_programs(*row)] if programs else []
            best, best_js = best_of(lambda a: read(a, items[hard]), own[hard], epsilon, tried)
            edge, js[hard] = best_on_edges(*row, best_js)
            adversary[hard] = torch.where((js[hard] > best_js)[:, None], edge, best)
            upper[hard] = torch.maximum(bound_by_pairs(*row), js[hard])
    js, upper = (js.masked_fill(broken, math.nan) for js in (js, upper))
    shape = weights.shape[:-1]
    return adversary.reshape(weights.shape), js.reshape(shape), upper.reshape(shape)


def worst_case_js(weights: Tensor, item_logits: Tensor, mask: Tensor, epsilons: Tensor) -> Tensor:
    """The JS of `worst_case_attention` for two classes at each of several tolerances.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, 2), or (B, H, N, 2).
        mask: What attention may reach, (B, N) bool.
        epsilons: Largest total variation distances, (K,), above 0 and ascending.

    Returns:
        (B, K), or (B, H, K), float64 in nats, ascending; NaN where logits are not finite.

    Raises:
        InputError: If epsilons are not above 0 and ascending, or there are more than two classes.
    """
    if not (epsilons.diff(prepend=epsilons.new_zeros(1)) > 0).all():
        raise InputError(f"epsilons are {epsilons.tolist()}, but must be above 0 and ascending")
    if item_logits.shape[-1] != 2:
        raise InputError(f"item logits are of {item_logits.shape[-1]} classes, but must be of 2")
    own, reach = flatten_heads(weights, mask)
    items = flatten_item_logits(own, item_logits, reach)
    broken = ~read(own, items).isfinite().all(-1)
    items = items.masked_fill(broken[:, None, None], 0.0)
    q, p = read(own, items).softmax(-1).unsqueeze(1).unbind(-1)
    low, high = log_ratio_bounds(p, q, epsilons.to(own))
    _, js = max_js_attention(own, items[..., 1] - items[..., 0], low, high, reach)
    return js.masked_fill(broken[:, None], math.nan).reshape(*weights.shape[:-1], -1)


def best_of(
    read: Callable[[Tensor], Tensor], own: Tensor, epsilon: float, attentions: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """The one of `own` and attentions (R, N) with the largest JS that keeps the prediction.

    Args:
        read: From attentions (R, K, N) to logits (R, K, C).
        own: The model's attention, (R, N) float64.
        epsilon: Largest total variation distance between the predictions.
        attentions: Each (R, N) float64.

    Returns:
        Attention (R, N) and its JS (R,).
    """
    prediction = read(own.unsqueeze(1)).softmax(-1)
    best, best_js = own, torch.zeros_like(own[:, 0])
    for attention in attentions:
        moved = total_variation(read(attention.unsqueeze(1)).softmax(-1), prediction).squeeze(1)
        js = js_from(own, attention)
        better = (moved <= epsilon + _ROUNDING) & (js > best_js)
        best = torch.where(better[:, None], attention, best)
        best_js = torch.where(better, js, best_js)
    return best, best_js
