"""How much of the divergence that attention could have from another it has."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnlight.functional.divergence import js_divergence


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
