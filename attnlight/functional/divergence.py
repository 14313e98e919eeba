"""Divergences between distributions over the last dimension, in nats.

0 log 0 is 0, nothing returns NaN, and gradients are finite wherever the value is: attention is
exactly 0 on padding, and softmax underflows.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override


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
    safe_total = torch.where(present, total, 1.0)
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

    For two classes it is the absolute difference of one class's probability.

    Args:
        p: (..., N), each row summing to 1.
        q: (..., N), each row summing to 1.

    Returns:
        (...).
    """
    return (p - q).abs().sum(-1) / 2


Divergence = Literal["kl", "js", "tvd"]
_BLOCK = 1 << 15  # numbers at once on a CPU: what a divergence makes on its way stays in the cache


def divergence_from(fixed: Tensor, p: Tensor, kind: Divergence) -> Tensor:
    """Divergence of p over the last dimension, with a gradient for p alone.

    Args:
        fixed: (R, ..., N), each row summing to 1; for `kl` positive wherever p is.
        p: (R, ..., N), each row summing to 1.
        kind: `kl`, of p from `fixed`, or `js`, in nats, or `tvd`.

    Returns:
        (R, ...), to a few units in the last place of 1. Its gradient is `log(p / fixed)`, half of
        `log(p / mean)`, or half the sign of the difference; a p below the smallest normal number
        counts as that in it.
    """
    result: Tensor = _FromFixed.apply(fixed, p, kind)  # type: ignore[no-untyped-call]
    return result


class _FromFixed(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, fixed: Tensor, p: Tensor, kind: Divergence) -> Tensor:
        size = max(1, len(p))
        if p.device.type == "cpu" and len(p):
            size = max(1, _BLOCK // p[0].numel())
        blocks = zip(torch.split(fixed, size), torch.split(p, size), strict=True)
        values, slopes = [], []
        for other, own in blocks:
            if kind == "tvd":
                moved = own - other
                value, slope = moved.abs().sum(-1) / 2, moved.sign() / 2
            elif kind == "kl":
                slope = _log(own) - _log(other)
                value = (own * slope - (own - other)).sum(-1)
            else:
                mean = _log((own + other) / 2)
                slope = (_log(own) - mean) / 2
                value = (own * slope + other * ((_log(other) - mean) / 2)).sum(-1)
            values.append(value)
            slopes.append(slope)
        ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:  # noqa: ANN401
        (slope,) = ctx.saved_tensors
        return None, gradient.unsqueeze(-1) * slope, None


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=torch.finfo(p.dtype).tiny).log()


def largest_js(weights: Tensor, mask: Tensor) -> Tensor:
    """The largest Jensen-Shannon divergence that any attention on a row can have from a given one.

    JS(p, w) is convex in p, since KL is convex in both arguments at once. A convex function on the
    simplex is largest at a vertex, and the vertices are all attention on one item k:
    `ln 2 - ((1 + w_k) ln(1 + w_k) - w_k ln w_k) / 2`. Its derivative in w_k,
    `-ln((1 + w_k) / w_k) / 2`, is negative: the best item is one of least weight.

    Args:
        weights: The given attention (R, N), or (R, H, N) for each head alone, 0 off the mask.
        mask: What attention may reach, (R, N) bool.

    Returns:
        (R,), or (R, H), float64 in nats: 0 where there is one item or none, at most ln 2.

    Example:
        >>> largest_js(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1, 0], [1, 1]]).bool())
        tensor([0.0000, 0.6931], dtype=torch.float64)
    """
    reach = mask if weights.ndim == mask.ndim else mask.unsqueeze(1)
    least = weights.double().masked_fill(~reach, 1.0).amin(-1)
    return math.log(2) - ((1 + least) * torch.log1p(least) - torch.xlogy(least, least)) / 2


def js_share(weights: Tensor, base: Tensor, mask: Tensor) -> Tensor:
    """JS of attention from a base's, as a share of the largest that any could have on the row.

    With H heads both are means over heads, since any attention may differ in each of them: the
    share is the ratio of these means, for which the order of the heads matters in the first alone.

    Args:
        weights: Attention (R, N), or (R, H, N), 0 off the mask.
        base: The base's, of the same shape, its heads paired with those of `weights`.
        mask: What attention may reach, (R, N) bool.

    Returns:
        (R,) float64, from 0 to 1; NaN where there is one item, and attention has no choice.
    """
    found, largest = js_divergence(weights.double(), base.double()), largest_js(base, mask)
    if found.ndim > 1:
        found, largest = found.mean(-1), largest.mean(-1)
    choice = mask.sum(-1) > 1
    return (found / torch.where(choice, largest, torch.nan)).clamp(max=1.0)
