"""Attentions with the logits of a given one that prefer items of small weight, for many classes.

With the logits fixed, the attention that maximises `sum_i a_i g_i` plus T times its entropy is
`a_i ~ exp((g_i - l . u_i) / T)`, where u_i is how far item i's logits are from the given ones and l
is the minimum of a smooth convex function of C - 1 numbers: exponential tilting. As T falls it
concentrates on few items. With g_i the JS of item i alone, which is largest for the items of least
weight, it moves away from the given attention and leaves the prediction where it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.adversary.exact import one_item_js
from attnlight.functional.readout.affine import read

# Temperatures in nats, each half the one before; Newton steps at each; shrinkings of a step.
_TEMPERATURES, _NEWTON, _SHRINKINGS = tuple(0.1 / 2**k for k in range(11)), 6, 6
# Of the curvature, so that a step is defined where few items are left; what rounding may add.
_RIDGE, _ROUNDING = 1e-7, 1e-12


def tilted_attentions(weights: Tensor, item_logits: Tensor, mask: Tensor) -> list[Tensor]:
    """Attentions with the logits of `weights`, from spread out to concentrated.

    Args:
        weights: (R, N) float64, summing to 1, 0 off the mask.
        item_logits: (R, N, C) float64, finite.
        mask: What attention may reach, (R, N) bool.

    Returns:
        Each (R, N) float64; meaningless where the search for l fails, so check the prediction.
    """
    beyond = item_logits - read(weights, item_logits).unsqueeze(1)
    u = beyond[..., :-1] - beyond[..., -1:]
    spread = (weights.unsqueeze(-1) * u.square()).sum(1, keepdim=True).sqrt()
    u = u / spread.clamp(min=torch.finfo(u.dtype).eps)
    gain = one_item_js(weights).masked_fill(~mask, -torch.inf)
    tilt, found = torch.zeros_like(u[:, 0]), []
    for temperature in _TEMPERATURES:
        scores = gain / temperature
        for _ in range(_NEWTON):
            tilt = _newton(scores, u, tilt)
        found.append(_tilted(scores, u, tilt).softmax(-1))
        tilt = 2 * tilt  # l over the next temperature
    return found


def _tilted(scores: Tensor, u: Tensor, tilt: Tensor) -> Tensor:
    return scores - (u @ tilt.unsqueeze(-1)).squeeze(-1)


def _newton(scores: Tensor, u: Tensor, tilt: Tensor) -> Tensor:
    """One damped step of Newton's method on `log sum exp` of the tilted scores, (R, C - 1)."""
    tilted = _tilted(scores, u, tilt)
    level, attention = tilted.logsumexp(-1), tilted.softmax(-1).unsqueeze(-1)
    mean = (attention * u).sum(1)
    centred = u - mean.unsqueeze(1)
    curvature = (attention * centred).mT @ centred
    diagonal = curvature.diagonal(dim1=-2, dim2=-1)
    ridge = _RIDGE * diagonal.sum(-1, keepdim=True) + torch.finfo(u.dtype).eps
    curvature = curvature + torch.diag_embed(ridge.expand_as(diagonal))
    step: Tensor = torch.linalg.solve_ex(curvature, mean).result
    size = torch.ones_like(level).unsqueeze(-1)
    for _ in range(_SHRINKINGS):
        higher = _tilted(scores, u, tilt + size * step).logsumexp(-1) > level + _ROUNDING
        if not higher.any():
            break
        size = torch.where(higher.unsqueeze(-1), size / 4, size)
    return tilt + size * step
