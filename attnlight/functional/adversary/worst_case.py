"""Attention as different as possible from the original that preserves the prediction.

With several heads each is varied separately, the others fixed: their logits are added to the item
logits, which is exact. All results are float64: rounding an adversary to float32 can change its
prediction.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from attnlight.errors import InputError
from attnlight.functional.adversary.exact import js_from, max_js_attention, one_item_js
from attnlight.functional.adversary.linear_programs import linear_program_attention
from attnlight.functional.adversary.multiclass import best_two_item_mixture, log_ratio_bounds
from attnlight.functional.divergence import total_variation
from attnlight.functional.masking import allowed_classes
from attnlight.functional.readout.affine import read
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits

# Rounding error of the distance between predictions at a vertex.
_ROUNDING = 1e-12
# Pairs of a row and a class pair solved at once; pairs checked at once.
_SOLVED, _CHECKED = 1 << 13, 1 << 20


def worst_case_attention(
    weights: Tensor,
    item_logits: Tensor,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
    programs: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of largest JS from the original that moves the prediction by <= epsilon.

    The question of Jain and Wallace (2019), section 4.2.2. For two classes the answer is exact: the
    probability depends on the mean of one variable over items, and JS, being convex, is largest at
    a vertex of the set of attentions that keep it in bounds. For more classes it is exact where all
    attention on the item of least weight preserves the prediction, since no attention has a larger
    JS. Otherwise the adversary is the best of a local maximum reached by linear programs,
    attentions on one item and on two items, and `found`. `upper` bounds every adversary: it is the
    minimum, over pairs of classes, of the exact answer when only the log ratio of that pair must
    stay in the bounds that epsilon implies. Classes that are not allowed are left out, so that a
    row of two allowed classes has the exact answer.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C).
        mask: Items that attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between predictions, above 0.
        found: Attention from another search, such as `search_adversary`, in the shape of `weights`;
            with more than two classes it is the adversary where no better one is available.
        programs: With more than two classes, solve linear programs: up to eight per row, of some
            milliseconds each.

    Returns:
        Adversary (B, N), or (B, H, N); its JS in nats, (B,), or (B, H); and `upper`, the same as JS
        for two classes. All float64; JS and `upper` are NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    if not epsilon > 0:  # up to rounding, no other attention gives an equal prediction
        raise InputError(f"epsilon is {epsilon}, but must be above 0")
    original, reach = flatten_heads(weights, mask)
    items = flatten_item_logits(original, item_logits, reach)
    logits = read(original, items)
    nonfinite = ~logits.isfinite().all(-1)
    items = items.masked_fill(nonfinite[:, None, None], 0.0)
    if items.shape[-1] == 2:
        q, p = read(original, items).softmax(-1).unbind(-1)
        low, high = log_ratio_bounds(p, q, epsilon)
        e = items[..., 1] - items[..., 0]
        adversary, _ = max_js_attention(original, e, low[:, None], high[:, None], reach)
        js = upper = js_from(original, adversary)
    elif not (allowed := allowed_classes(logits)).all():
        # Without the other classes, rows with equally many allowed ones together.
        counts = allowed.sum(-1).clamp(min=2)
        adversary, js = torch.empty_like(original), torch.empty_like(original[:, 0])
        upper = js.clone()
        classes = allowed.byte().argsort(dim=-1, descending=True, stable=True).unsqueeze(1)
        for count in torch.unique(counts).tolist():
            rows = (counts == count).nonzero().squeeze(-1)
            chosen = classes[rows, :, :count].expand(-1, items.shape[1], -1)
            instances = original[rows], items[rows].gather(-1, chosen), reach[rows]
            given = None if found is None else found.reshape(original.shape)[rows]
            solved = worst_case_attention(*instances, epsilon, given, programs)
            adversary[rows], js[rows], upper[rows] = solved
    else:
        lightest_item = one_item_js(original).masked_fill(~reach, -1.0).argmax(-1, keepdim=True)
        lightest = torch.zeros_like(original).scatter(1, lightest_item, 1.0) * reach.any(
            -1, keepdim=True
        )
        adversary, js = best_of(lambda a: read(a, items), original, epsilon, [lightest])
        upper = js.clone()
        # No attention has a larger JS than all attention on the lightest item.
        unsolved = ((js == 0) & reach.any(-1)).nonzero().squeeze(-1)
        if len(unsolved):
            arguments = original[unsolved], items[unsolved], reach[unsolved], epsilon
            candidates = [] if found is None else [found.double().reshape(original.shape)[unsolved]]
            candidates += [linear_program_attention(*arguments)] if programs else []
            best, best_js = best_of(
                lambda a: read(a, items[unsolved]), original[unsolved], epsilon, candidates
            )
            mixture, js[unsolved] = best_two_item_mixture(*arguments, best_js)
            adversary[unsolved] = torch.where((js[unsolved] > best_js)[:, None], mixture, best)
            upper[unsolved] = torch.maximum(pairwise_upper_bound(*arguments), js[unsolved])
    js, upper = (js.masked_fill(nonfinite, math.nan) for js in (js, upper))
    shape = weights.shape[:-1]
    return adversary.reshape(weights.shape), js.reshape(shape), upper.reshape(shape)


def worst_case_js(weights: Tensor, item_logits: Tensor, mask: Tensor, epsilons: Tensor) -> Tensor:
    """The JS of `worst_case_attention` for two classes at each of several tolerances.

    These are `epsilons` (K,), above 0 and ascending; other arguments are those of that function.

    Returns:
        (B, K), or (B, H, K), float64 in nats, ascending; NaN where logits are not finite.

    Raises:
        InputError: If epsilons are not above 0 and ascending, or there are more than two classes.
    """
    if not (epsilons.diff(prepend=epsilons.new_zeros(1)) > 0).all():
        raise InputError(f"epsilons are {epsilons.tolist()}, but must be above 0 and ascending")
    if item_logits.shape[-1] != 2:
        raise InputError(f"item logits are of {item_logits.shape[-1]} classes, but must be of 2")
    original, reach = flatten_heads(weights, mask)
    items = flatten_item_logits(original, item_logits, reach)
    nonfinite = ~read(original, items).isfinite().all(-1)
    items = items.masked_fill(nonfinite[:, None, None], 0.0)
    q, p = read(original, items).softmax(-1).unsqueeze(1).unbind(-1)
    low, high = log_ratio_bounds(p, q, epsilons.to(original))
    _, js = max_js_attention(original, items[..., 1] - items[..., 0], low, high, reach)
    return js.masked_fill(nonfinite[:, None], math.nan).reshape(*weights.shape[:-1], -1)


def best_of(
    read: Callable[[Tensor], Tensor], original: Tensor, epsilon: float, attentions: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """The attention (R, N) of largest JS that preserves the prediction, and its JS (R,).

    One of `attentions`, each (R, N) float64, or the `original`; `read` gives logits (R, K, C) of
    attentions (R, K, N).
    """
    prediction = read(original.unsqueeze(1)).softmax(-1)
    best, best_js = original, torch.zeros_like(original[:, 0])
    for attention in attentions:
        distance = total_variation(read(attention.unsqueeze(1)).softmax(-1), prediction).squeeze(1)
        js = js_from(original, attention)
        better = (distance <= epsilon + _ROUNDING) & (js > best_js)
        best = torch.where(better[:, None], attention, best)
        best_js = torch.where(better, js, best_js)
    return best, best_js


def pairwise_upper_bound(original: Tensor, items: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """Upper bound on the JS of every attention that preserves the prediction, by pairs of classes.

    A prediction within epsilon has the log ratio of each pair of classes in bounds, and for a
    single pair the largest JS is exact; the bound is the minimum over pairs. Pairs whose log ratio
    stays in bounds under all attention on the lightest item give no bound, since no attention has a
    larger JS; nor do pairs of classes with probabilities both up to epsilon.

    Arguments are those of `linear_program_attention`; each row needs an item.

    Returns:
        (R,) float64, in nats.
    """
    prediction = read(original, items).softmax(-1)
    upper, lightest_item = one_item_js(original).masked_fill(~mask, -1.0).max(-1)
    rows, classes = torch.arange(len(original), device=original.device), items.shape[-1]
    likely = (prediction > epsilon).any(0)
    first, second = torch.triu_indices(classes, classes, 1, device=original.device)
    first, second = (side[likely[first] | likely[second]] for side in (first, second))
    for part in torch.split(rows, max(1, _CHECKED // max(1, len(first)))):
        p, q = prediction[part][:, first], prediction[part][:, second]
        low, high = log_ratio_bounds(p, q, epsilon)
        lightest_logits = items[part, lightest_item[part]]
        log_ratio = lightest_logits[:, first] - lightest_logits[:, second]
        row, pair = ((log_ratio < low) | (log_ratio > high)).nonzero().unbind(-1)
        for block in torch.split(torch.arange(len(row), device=original.device), _SOLVED):
            instance, bounds = part[row[block]], (row[block], pair[block])
            e = items[instance, :, first[pair[block]]] - items[instance, :, second[pair[block]]]
            limits = low[bounds][:, None], high[bounds][:, None]
            vertex, _ = max_js_attention(original[instance], e, *limits, mask[instance])
            upper = upper.scatter_reduce(0, instance, js_from(original[instance], vertex), "amin")
    return upper
