"""Log odds of a class: what attributions explain, for two classes and many alike."""

import torch
from torch import Tensor

# Share of the largest effect by which an item that speaks against a class is below neutral ones.
OPPOSING = 0.1


def log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """Log odds of the target class, `z_target - logsumexp(z_others)`.

    Another class that is not allowed has the logit `NOT_ALLOWED` and counts for nothing, unless it
    is the only other one.

    Args:
        logits: (R, C), or (R, K, C) for K predictions of each row.
        target: Class of each row, (R,) long.

    Returns:
        (R,), or (R, K), float64.

    Example:
        >>> log_odds(torch.tensor([[0.0, 2.5]]), torch.tensor([1]))
        tensor([2.5000], dtype=torch.float64)
    """
    logits = logits.double()
    chosen = target.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
    others = logits.scatter(-1, chosen, -torch.inf).logsumexp(-1)
    return logits.gather(-1, chosen).squeeze(-1) - others


def opposing_items(effect: Tensor, items: Tensor) -> Tensor:
    """Items that speak against a class, (R, N) bool: their removal raises its log odds.

    Where attention is renormalised, so does the removal of a neutral item. Therefore the effect must
    not only be negative, but also below that of the row's median item, by more than a tenth of the
    row's largest effect, the share by which uses must differ to be told apart in
    docs/known_answers.md.

    Args:
        effect: Log odds of the class less those without each item, (R, N); NaN where undefined.
        items: The items, (R, N) bool.

    Example:
        >>> opposing_items(torch.tensor([[2.0, -0.1, -0.1, -0.9]]), torch.ones(1, 4) > 0)
        tensor([[False, False, False,  True]])
    """
    effect = effect.masked_fill(~items, torch.nan)
    neutral = effect.nanmedian(-1, keepdim=True).values.nan_to_num().clamp(max=0.0)
    return effect < neutral - OPPOSING * effect.abs().nan_to_num().amax(-1, keepdim=True)
