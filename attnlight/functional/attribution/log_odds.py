"""Log odds of a class: what attributions explain, for two classes and many alike."""

from __future__ import annotations

import torch
from torch import Tensor


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
