"""Divergences between distributions over the last dimension, in nats.

0 log 0 is 0, nothing returns NaN, and gradients are finite wherever the value is: attention is
exactly 0 on padding, and softmax underflows.
"""

import math
from typing import Literal

import torch
from torch import Tensor


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Kullback-Leibler divergence of p from q, `sum p log(p / q)`; inf where q = 0 < p.

    Summed as `p log(p / q) - p + q`, which is equal for distributions and has no negative terms, so
    that small divergences are not affected by rounding in sums to 1.

    Args:
        p: (..., N), each row summing to 1.
        q: (..., N), each row summing to 1.

    Returns:
        (...).
    """
    positive = (p > 0) & (q > 0)
    safe_p, safe_q = torch.where(positive, p, 1.0), torch.where(positive, q, 1.0)
    difference = safe_p - safe_q
    near = (difference.abs() < safe_q / 2) & (safe_q >= torch.finfo(safe_q.dtype).tiny)
    close_ratio = torch.log1p(torch.where(near, difference, 0.0) / torch.where(near, safe_q, 1.0))
    log_ratio = torch.where(near, close_ratio, safe_p.log() - safe_q.log())
    terms = torch.where(positive, p * log_ratio, 0.0) - (p - q)
    return torch.where((p > 0) & (q <= 0), math.inf, terms).sum(-1)


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence, from 0 to ln 2 (disjoint supports).

    With s = p + q and t = |p - q| / s it is the sum of
    `s / 4 ((1 + t) log(1 + t) + (1 - t) log(1 - t))`. Up to t = 1/2 the bracket is taken as
    `2 t atanh t + log(1 - t^2)`, which avoids cancellation for nearly equal p and q; beyond, 1 - t
    is computed from the smaller of the two, without cancellation. Arguments and shapes are those of
    `kl_divergence`.
    """
    total = p + q
    safe_total = torch.where(total >= torch.finfo(total.dtype).tiny, total, 1.0)
    ratio = (p - q).abs() / safe_total
    close, disjoint = ratio <= 0.5, torch.minimum(p, q) <= 0
    inner = torch.where(close, ratio, 0.0)
    near = 2 * inner * torch.atanh(inner) + torch.log1p(-inner.square())
    outer = ~(close | disjoint)
    low = torch.where(outer, 2 * torch.minimum(p, q) / safe_total, 1.0)
    high = torch.where(outer, 2 * torch.maximum(p, q) / safe_total, 1.0)
    far = torch.where(disjoint, 2 * math.log(2), low * low.log() + high * high.log())
    terms = total * torch.where(close, near, far)
    return (terms.sum(-1) / 4).clamp(max=math.log(2))


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Total variation distance, `sum |p - q| / 2`, from 0 to 1.

    For two classes it is the absolute difference of one class's probability. Arguments and shapes are
    those of `kl_divergence`.
    """
    return (p - q).abs().sum(-1) / 2


Divergence = Literal["kl", "js", "tvd"]


def divergence_to_constant(constant: Tensor, p: Tensor, kind: Divergence) -> Tensor:
    """Divergence between p and a constant over the last dimension, in fewer operations.

    Args:
        constant: (R, ..., N), each row summing to 1; for `kl` positive wherever p is.
        p: (R, ..., N), each row summing to 1.
        kind: `kl` of p from `constant` or `js`, both in nats, or `tvd`.

    Returns:
        (R, ...), with an error of a few units in the last place of 1. In logarithms p is raised to
        at least the smallest normal number, so that gradients are finite.
    """
    if kind == "tvd":
        return total_variation(p, constant)
    if kind == "kl":
        return (p * (_log(p) - _log(constant)) - (p - constant)).sum(-1)
    mean = _log((p + constant) / 2)
    return (p * (_log(p) - mean) + constant * (_log(constant) - mean)).sum(-1) / 2


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=torch.finfo(p.dtype).tiny).log()


def max_js(weights: Tensor, mask: Tensor) -> Tensor:
    """The largest Jensen-Shannon divergence of any attention from a given one, for each row.

    JS(p, w) is convex in p, since KL is jointly convex in its arguments. A convex function on the
    simplex is maximal at a vertex, where all attention is on one item k:
    `ln 2 - ((1 + w_k) ln(1 + w_k) - w_k ln w_k) / 2`. Its derivative in w_k,
    `-ln((1 + w_k) / w_k) / 2`, is negative: the best item is one of least weight.

    Args:
        weights: The given attention (R, N), or (R, H, N) for each head separately, 0 off the mask.
        mask: Items that attention may reach, (R, N) bool.

    Returns:
        (R,), or (R, H), float64 in nats: 0 where there is one item or none, at most ln 2.

    Example:
        >>> max_js(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1, 0], [1, 1]]).bool())
        tensor([0.0000, 0.6931], dtype=torch.float64)
    """
    reach = mask if weights.ndim == mask.ndim else mask.unsqueeze(1)
    least = weights.double().masked_fill(~reach, 1.0).amin(-1)
    return math.log(2) - ((1 + least) * torch.log1p(least) - torch.xlogy(least, least)) / 2


def normalized_js(weights: Tensor, base: Tensor, mask: Tensor) -> Tensor:
    """JS divergence from a base's attention, normalised by its maximum on the row.

    With H heads it is the ratio of the means over heads of both, since attention may differ in each
    head; only the numerator depends on the order of the heads.

    Args:
        weights: Attention (R, N), or (R, H, N), 0 off the mask.
        base: The base's attention, of the same shape, its heads paired with those of `weights`.
        mask: Items that attention may reach, (R, N) bool.

    Returns:
        (R,) float64, from 0 to 1; NaN where attention has a single item.
    """
    js, maximum = js_divergence(weights.double(), base.double()), max_js(base, mask)
    if js.ndim > 1:
        js, maximum = js.mean(-1), maximum.mean(-1)
    return (js / torch.where(mask.sum(-1) > 1, maximum, torch.nan)).clamp(max=1.0)
