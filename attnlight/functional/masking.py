"""Items that attention may reach, and classes that are allowed."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

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
    positive = weights.clamp(min=torch.finfo(weights.dtype).tiny)
    return -(weights * positive.log()).sum(-1)


def allowed_classes(logits: Tensor) -> Tensor:
    """Which classes are allowed, (..., C) bool: those whose logit (..., C) is not `NOT_ALLOWED`.

    Example:
        >>> allowed_classes(torch.tensor([[0.0, NOT_ALLOWED, 2.5]]))
        tensor([[ True, False,  True]])
    """
    return ~((logits - NOT_ALLOWED).abs() <= _ROUNDING)  # NaN counts as allowed
