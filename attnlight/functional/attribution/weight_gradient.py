"""Gradient of the prediction with respect to attention weights, in closed form."""

from typing import Literal

import torch
from torch import Tensor

from attnlight.functional.readout.affine import read

Target = Literal["runner_up"] | int | None


def target_class(logits: Tensor, target: Target = None) -> Tensor:
    """The class of each row (R,) long whose probability is differentiated, from logits (R, C).

    Args:
        logits: (R, C); of equal ones the lower class is first.
        target: A class, `runner_up`, that of the second highest logit, or None, that of the highest.
    """
    highest = logits.argmax(-1)
    if target is None:
        return highest
    if target == "runner_up":
        return logits.scatter(-1, highest[:, None], -torch.inf).argmax(-1)
    return torch.full_like(highest, target)


def weight_gradient(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor, target: Target = None
) -> Tensor:
    """Gradient of a class's probability with respect to each attention weight.

    As defined by Serrano and Smith (2019): the weights are free variables after the softmax and do
    not scale the bias. The gradient `p_y ((z_iy - b_y) - sum_c p_c (z_ic - b_c))` is computed as
    `p_y sum_c p_c ((z_iy - b_y) - (z_ic - b_c))`, which is accurate where p_y is nearly 1.

    Arguments are those of `erase_each` and `target_class`; the bias is folded into `item_logits`,
    shared over heads.

    Returns:
        (B, N), or (B, H, N), float64; 0 off the mask.
    """
    single = weights.ndim == 2
    if single:
        weights, item_logits = weights.unsqueeze(1), item_logits.unsqueeze(1)
    off = ~mask.unsqueeze(1)
    items = item_logits.double().masked_fill(off.unsqueeze(-1), 0.0)
    logits = read(weights.double().masked_fill(off, 0.0), items)
    probabilities, chosen = logits.softmax(-1), target_class(logits, target)
    effects = items - bias.double().expand_as(probabilities)[:, None, None] / weights.shape[1]
    own = effects.gather(-1, chosen[:, None, None, None].expand(*effects.shape[:-1], 1))
    scale = (probabilities * probabilities.gather(-1, chosen[:, None]))[:, None, None]
    gradient = ((own - effects) * scale).sum(-1).masked_fill(off, 0.0)
    return gradient.squeeze(1) if single else gradient
