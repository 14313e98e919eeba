"""Gradient of the prediction with respect to attention weights, in closed form."""

from torch import Tensor

from attnlight.functional.readout.affine import read


def weight_gradient(weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    """Gradient of the winning class's probability with respect to each attention weight.

    As defined by Serrano and Smith (2019): the weights are free variables after the softmax and do
    not scale the bias. The gradient `p_y ((z_iy - b_y) - sum_c p_c (z_ic - b_c))` is computed as
    `p_y sum_c p_c ((z_iy - b_y) - (z_ic - b_c))`, which is accurate where p_y is nearly 1.

    Arguments are those of `erase_each`; the bias is folded into `item_logits`, shared over heads.

    Returns:
        (B, N), or (B, H, N), float64; 0 off the mask.
    """
    single = weights.ndim == 2
    if single:
        weights, item_logits = weights.unsqueeze(1), item_logits.unsqueeze(1)
    off = ~mask.unsqueeze(1)
    items = item_logits.double().masked_fill(off.unsqueeze(-1), 0.0)
    probabilities = read(weights.double().masked_fill(off, 0.0), items).softmax(-1)
    highest, winner = probabilities.max(-1)
    effects = items - bias.double().expand_as(probabilities)[:, None, None] / weights.shape[1]
    winner_effects = effects.gather(-1, winner[:, None, None, None].expand(*effects.shape[:-1], 1))
    scale = (probabilities * highest[:, None])[:, None, None]
    gradient = ((winner_effects - effects) * scale).sum(-1).masked_fill(off, 0.0)
    return gradient.squeeze(1) if single else gradient
