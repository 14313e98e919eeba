"""Jain and Wallace's gradient search for different attention with the same prediction."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attnlight.functional.adversary.worst_case import best_of
from attnlight.functional.divergence import js_divergence, total_variation
from attnlight.functional.masking import masked_softmax
from attnlight.functional.random import draw_keys
from attnlight.functional.readout.affine import read
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits, head_readout
from attnlight.functional.readout.opaque import ReadoutFunction


def search_adversary(
    weights: Tensor,
    item_logits: Tensor | ReadoutFunction,
    mask: Tensor,
    epsilon: float,
    rows: Tensor,
    *,
    seed: int = 0,
    starts: int = 5,
    steps: int = 500,
    learning_rate: float = 0.01,
    amsgrad: bool = True,
    penalty: float = 500.0,
    search_epsilon: float | None = None,
    start_scale: float = 3.0,
    spread: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The most different attention that Jain and Wallace's gradient search reaches.

    Jain and Wallace (2019), section 4.2.2, with the constants of their released code: Adam on the
    scores of several attentions at once maximises their JS from the original, minus `penalty` times
    the excess of the distance between predictions over `search_epsilon`, plus `spread` times the
    mean JS between them. The best final attention within `epsilon` is returned, or the original if
    there is none. An instance's draws depend only on the seed, its row and its length.

    With several heads each is searched separately, the others fixed. Only the scores receive
    gradients.

    Args:
        weights: The model's attention (B, N), or (B, H, N).
        item_logits: (B, N, C), or (B, H, N, C); where the readout is not affine, a function from
            candidates (B, H, K, N) to logits (B, K, C) that is differentiable.
        mask: Items that attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between predictions under the returned attention.
        rows: Dataset index and position of each row, (B, 2) long.
        seed: Any integer.
        starts: Number of attentions K.
        steps: Number of steps of Adam.
        learning_rate: Learning rate of Adam.
        amsgrad: Whether Adam is the AMSGrad variant.
        penalty: Weight of the excess.
        search_epsilon: Distance above which the excess counts, `epsilon` if None.
        start_scale: Standard deviation of the normal scores at the start.
        spread: Weight of the mean JS between the attentions of an instance.

    Returns:
        Adversary (B, N), or (B, H, N), and its JS in nats, (B,), or (B, H). All float64; JS is NaN
        where logits are not finite.
    """
    original, reach = flatten_heads(weights, mask)
    readout: Callable[[Tensor], Tensor]
    if isinstance(item_logits, Tensor):
        readout = partial(read, item_logits=flatten_item_logits(original, item_logits, reach))
    else:
        readout = head_readout(item_logits, weights)
    original_logits = readout(original.unsqueeze(1))
    prediction = original_logits.softmax(-1)
    limit = epsilon if search_epsilon is None else search_epsilon
    first, second = torch.triu_indices(starts, starts, 1, device=original.device)

    heads = len(original) // max(len(rows), 1)
    scores = (start_scale * normal_scores(seed, rows, heads, starts, reach)).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=learning_rate, amsgrad=amsgrad)
    for _ in range(steps):
        with torch.enable_grad():
            attentions = masked_softmax(scores, reach)
            distance = total_variation(readout(attentions).softmax(-1), prediction)
            excess = (distance - limit).relu()
            gain = js_divergence(attentions, original[:, None]) - penalty * excess
            diversity = js_divergence(attentions[:, first], attentions[:, second])
            loss = -gain.sum() - spread * (2 * diversity / starts**2).sum()
            # Not backward(), which would accumulate gradients in the model's parameters.
            (scores.grad,) = torch.autograd.grad(loss, scores)
        optimizer.step()
    with torch.no_grad():
        attentions = masked_softmax(scores, reach)
        adversary, js = best_of(readout, original, epsilon, attentions.unbind(1))
    js = js.masked_fill(~original_logits.isfinite().all(-1).squeeze(1), math.nan)
    return adversary.reshape(weights.shape), js.reshape(weights.shape[:-1])


def normal_scores(seed: int, rows: Tensor, heads: int, starts: int, mask: Tensor) -> Tensor:
    """Standard normal numbers (R, K, N) for each row's items in order, heads as rows."""
    keys = draw_keys(seed, rows[:, 0], rows[:, 1], heads * starts, mask.shape[1])
    uniform = ((keys >> 11).double() + (0.5 + 2**52)) / 2**53
    normal: Tensor = torch.special.ndtri(uniform).unflatten(1, (heads, starts)).flatten(0, 1)
    ordinals = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return normal.gather(-1, ordinals.unsqueeze(1).expand_as(normal))
