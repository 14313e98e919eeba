"""Divergences between distributions over the last dimension, in nats.

0 log 0 is 0, nothing returns NaN, and gradients are finite wherever the value is: attention is
exactly 0 on padding, and softmax underflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Kullback-Leibler divergence of p from q, `sum p log(p / q)`; inf where q = 0 < p.

    Summed as `p log(p / q) - p + q`, which is the same for distributions and whose terms are never
    negative: the rounding of sums to 1 does not reach a small divergence.

    Args:
        p: (..., N), each row summing to 1.
        q: (..., N), each row summing to 1.

    Returns:
        (...).
    """
    both = (p > 0) & (q > 0)
    safe_p, safe_q = torch.where(both, p, 1.0), torch.where(both, q, 1.0)
    difference = safe_p - safe_q
    near = (difference.abs() < safe_q / 2) & (safe_q >= torch.finfo(safe_q.dtype).tiny)
    close_ratio = torch.log1p(torch.where(near, difference, 0.0) / torch.where(near, safe_q, 1.0))
    log_ratio = torch.where(near, close_ratio, safe_p.log() - safe_q.log())
    terms = torch.where(both, p * log_ratio, 0.0) - (p - q)
    return torch.where((p > 0) & (q <= 0), math.inf, terms).sum(-1)


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence, from 0 to ln 2 (disjoint supports).

    With s = p + q and t = |p - q| / s it is the sum of
    `s / 4 ((1 + t) log(1 + t) + (1 - t) log(1 - t))`. Up to t = 1/2 the bracket is taken as
    `2 t atanh t + log(1 - t^2)`, where nothing cancels for nearly equal p and q; beyond, 1 - t is
    taken from the smaller of the two, so that no digit of it is lost.

    Args:
        p: (..., N), each row summing to 1.
        q: (..., N), each row summing to 1.

    Returns:
        (...).
    """
    total = p + q
    present = total >= torch.finfo(total.dtype).tiny
    whole = torch.where(present, total, 1.0)
    ratio = (p - q).abs() / whole
    close, disjoint = ratio <= 0.5, torch.minimum(p, q) <= 0
    inner = torch.where(close, ratio, 0.0)
    near = 2 * inner * torch.atanh(inner) + torch.log1p(-inner.square())
    outer = ~(close | disjoint)
    low = torch.where(outer, 2 * torch.minimum(p, q) / whole, 1.0)
    high = torch.where(outer, 2 * torch.maximum(p, q) / whole, 1.0)
    far = torch.where(disjoint, 2 * math.log(2), low * low.log() + high * high.log())
    terms = total * torch.where(close, near, far)
    return (terms.sum(-1) / 4).clamp(max=math.log(2))


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Total variation distance, `sum |p - q| / 2`, from 0 to 1.

    For two classes it is the absolute difference of one class's probability.

    Args:
        p: (..., N), each row summing to 1.
        q: (..., N), each row summing to 1.

    Returns:
        (...).
    """
    return (p - q).abs().sum(-1) / 2
