"""Items that attention may reach, and classes that are allowed."""

import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.overrides import handle_torch_function, has_torch_function_unary

from attnlight.batch import NOT_ALLOWED

# Largest error of `NOT_ALLOWED` in half precision and in weighted means.
_ROUNDING = 20.0


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the items of the mask; exactly 0 elsewhere.

    A row with an empty mask is all zeros. Scores off the mask are ignored, NaN and infinities
    included, and receive no gradient.

    Args:
        scores: (B, N), or (B, ..., N) such as (B, H, N) for H heads.
        mask: Items that attention may reach, (B, N) bool, or the shape of `scores`.

    Returns:
        Weights in the shape of `scores`; each row sums to 1 or is all zeros.

    Example:
        >>> masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    # Singleton dimensions after the first let (B, N) broadcast to (B, ..., N).
    shape = mask.shape[:1] + (1,) * (scores.ndim - mask.ndim) + mask.shape[1:]
    off = ~mask.reshape(shape)
    # The lowest finite number: -inf would turn fully masked rows and their gradients into NaN.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(off, lowest), dim=-1).masked_fill(off, 0.0)


def masked_entmax(scores: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """Sparse attention over the items of the mask: sparsemax or 1.5-entmax; exactly 0 elsewhere.

    Martins and Astudillo (2016), Peters et al. (2019): `((alpha - 1) s - t)_+ ^ (1 / (alpha - 1))` with
    the threshold t that makes a row sum to 1. Over the k items above it the threshold is in closed form,
    the mean less 1 / k (alpha 2), or less the square root of (1 - sum of squared deviations) / k (1.5):
    k is the number of items in descending order that are above the threshold of themselves and those
    before. Gradients are those of this formula, exact and 0 for items without weight.

    Args:
        scores: As of `masked_softmax`, which this replaces.
        mask: As of `masked_softmax`.
        alpha: 2 for sparsemax, 1.5 for 1.5-entmax.

    Returns:
        As `masked_softmax`; weights may be exactly 0 on the mask too.

    Example:
        >>> masked_entmax(torch.tensor([[2.0, 1.5, 0.0]]), torch.ones(1, 3).bool(), alpha=2)
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    if has_torch_function_unary(scores):  # one operation for those who follow each: attention
        return handle_torch_function(masked_entmax, (scores,), scores, mask, alpha)
    off = ~mask.reshape(mask.shape[:1] + (1,) * (scores.ndim - mask.ndim) + mask.shape[1:])
    highest = scores.detach().masked_fill(off, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    # Of the highest, 0, the weight is at most 1, so that the threshold is at least -1.
    scaled = ((scores - highest) * (alpha - 1)).masked_fill(off, -2.0)
    ordered = scaled.detach().clamp(min=-2.0).sort(dim=-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    means = ordered.cumsum(-1) / count
    deviations = ordered.square().cumsum(-1) - count * means.square()
    thresholds = _threshold(means, deviations, count, alpha)
    last = (ordered > thresholds).sum(-1, keepdim=True).clamp(min=1) - 1
    above = scaled > thresholds.gather(-1, last)
    number = above.sum(-1, keepdim=True).to(scores.dtype)
    mean = scaled.masked_fill(~above, 0.0).sum(-1, keepdim=True) / number
    deviation = (scaled - mean).masked_fill(~above, 0.0).square().sum(-1, keepdim=True)
    threshold = _threshold(mean, deviation, number, alpha)
    weights = (scaled - threshold).clamp(min=0.0) ** (1 / (alpha - 1))
    return weights.masked_fill(off | ~(above | threshold.isnan()), 0.0)


def _threshold(mean: Tensor, deviations: Tensor, count: Tensor, alpha: float) -> Tensor:
    """Threshold of items of this mean, sum of squared deviations, and number, see `masked_entmax`."""
    if alpha == 2:
        return mean - 1 / count
    return mean - ((1 - deviations).clamp(min=0.0) / count).sqrt()


def impermissible_penalty(scores: Tensor, impermissible: Tensor, mask: Tensor) -> Tensor:
    """-log(1 - attention on impermissible items) of each head, in nats (Pruthi et al. 2020).

    Computed from scores, as logsumexp(all) - logsumexp(permissible), which is finite where the
    attention on permissible items underflows. It is log(1 + exp(logsumexp(impermissible) -
    logsumexp(permissible))), which keeps the digits of a small penalty.

    Args:
        scores: Scores of the items before the softmax, (R, H, N); those off the mask are not used.
        impermissible: Items that attention should avoid, (R, N) bool.
        mask: Items that attention may reach, (R, N) bool.

    Returns:
        (R, H); 0 without gradient for rows without a permissible or without an impermissible item.
    """
    kinds = (mask & impermissible, mask & ~impermissible)
    both = (kinds[0].any(-1) & kinds[1].any(-1)).unsqueeze(-1)
    lowest = torch.finfo(scores.dtype).min
    attended = scores.masked_fill(~mask.unsqueeze(1), lowest)
    # The penalty depends on differences of scores alone, which are exact near 0.
    attended = attended - attended.detach().amax(-1, keepdim=True)
    sums = [
        attended.masked_fill(~(kind & both).unsqueeze(1), lowest).logsumexp(-1) for kind in kinds
    ]
    return torch.where(both, softplus(sums[0] - sums[1]), 0.0)


def evidence_divergence(scores: Tensor, marked: Tensor, mask: Tensor) -> Tensor:
    """KL divergence of each head's attention from the uniform distribution over the marked items.

    KL(u || w) in nats, for attention that is supervised (Liu et al. 2017; Mi et al. 2016): the mean
    over the m marked items of -log w, less log m, computed from scores.

    Args:
        scores: Scores of the items before the softmax, (R, H, N); those off the mask are not used.
        marked: Items that attention should reach, (R, N) bool.
        mask: Items that attention may reach, (R, N) bool.

    Returns:
        (R, H); 0 without gradient for rows without a marked item.
    """
    marked = marked & mask
    # The lowest finite number: -inf would turn fully masked rows and their gradients into NaN.
    lowest = torch.finfo(scores.dtype).min
    logs = scores.masked_fill(~mask.unsqueeze(1), lowest).log_softmax(-1)
    count = marked.sum(-1, keepdim=True).to(scores.dtype)
    sums = logs.masked_fill(~marked.unsqueeze(1), 0.0).sum(-1)
    return torch.where(count > 0, -sums / count.clamp(min=1) - count.clamp(min=1).log(), 0.0)


def attention_entropy(weights: Tensor) -> Tensor:
    """Entropy (...) in nats, 0 to log N, of attention (..., N) that sums to 1; 0 log 0 = 0.

    Its gradient is finite at weights of 0, so that it can serve as a penalty.
    """
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).sum(-1)


def allowed_classes(logits: Tensor) -> Tensor:
    """Which classes are allowed, (..., C) bool: those whose logit (..., C) is not `NOT_ALLOWED`.

    Example:
        >>> allowed_classes(torch.tensor([[0.0, NOT_ALLOWED, 2.5]]))
        tensor([[ True, False,  True]])
    """
    return ~((logits - NOT_ALLOWED).abs() <= _ROUNDING)  # NaN counts as allowed
