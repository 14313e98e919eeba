"""Which head of one model is which of another: heads have no order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def head_divergences(weights: Tensor, base: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each head of one model from each of another, summed over rows.

    Sums of parts of the rows add up to that of all. Taken as the entropy of the mean less the mean
    of the entropies, to 1e-13 or so a row, which sums of many rows do not notice.

    Args:
        weights: Attention (R, H, N), each row summing to 1, 0 off its mask.
        base: The other model's, (R, H, N).

    Returns:
        (H, H) float64 in nats: of head b of the base and head h of the model at [b, h].
    """
    own, other = weights.double(), base.double()
    apart = (_entropy(own) + _entropy(other)[:, None]) / 2
    pairs = [_entropy((own + other[:, [head]]) / 2) for head in range(other.shape[1])]
    return (torch.stack(pairs) - apart).clamp(min=0)


def _entropy(weights: Tensor) -> Tensor:
    """Entropy of each head (H,), in nats, summed over rows (R, H, N)."""
    entropies: Tensor = torch.special.entr(weights)
    return entropies.sum(-1).sum(0)


def match_heads(divergences: Tensor) -> list[int]:
    """The head of the model that stands for each head of the base, each for one.

    Of all ways to pair them it is the one of the least divergence in sum (the assignment problem).

    Args:
        divergences: As `head_divergences` gives them, (H, H).
    """
    from scipy.optimize import linear_sum_assignment

    _, heads = linear_sum_assignment(np.asarray(divergences.cpu()))
    return [int(head) for head in heads]
