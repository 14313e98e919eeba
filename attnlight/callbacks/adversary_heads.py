"""What adversaries of single heads do to a prediction, one by one and together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput
from attnlight.functional import largest_js, read, total_variation
from attnlight.functional.readout.heads import head_readout, own_attention, own_items


def joint_js(
    output: AttentionOutput, model: AttentionModel, adversary: Tensor, js: Tensor, epsilon: float
) -> Tensor:
    """Mean JS (R,) of heads that take their adversaries (R, H, N) while the prediction stays."""
    items = output.item_logits
    held = output.weights if items is None else output.weights.double()

    def predict(weights: Tensor) -> Tensor:
        if items is None:
            return model.readout(output, weights.unsqueeze(2)).squeeze(1).double().softmax(-1)
        return read(weights, items.double()).softmax(-1)

    own, total = predict(held), torch.zeros_like(js[:, 0])
    for head in range(js.shape[1]):
        tried = held.clone()
        tried[:, head] = adversary[:, head].to(held.dtype)
        # An adversary is often just at epsilon: rounding must not decide.
        kept = total_variation(predict(tried), own) <= epsilon * (1 + 1e-5)
        held = torch.where(kept[:, None, None], tried, held)
        total += torch.where(kept, js[:, head], 0.0)
    return total / js.shape[1]


class Heads:
    """The heads of R rows, each by itself beside the others as they are."""

    def __init__(self, output: AttentionOutput, model: AttentionModel) -> None:
        own, reach = own_attention(output.weights, output.mask)
        self._own, self._reach = own, reach
        self._shape = output.weights.shape[:2]
        self._read: Callable[[Tensor], Tensor]
        if output.item_logits is None:
            self._read = head_readout(partial(model.readout, output), output.weights)
        else:
            self._read = partial(read, item_logits=own_items(own, output.item_logits, reach))

    def moved(self, attention: Tensor) -> Tensor:
        """How far attention (R, H, N) in place of each head's own moves the prediction, (R, H)."""
        others = torch.stack([attention.flatten(0, 1), self._own], dim=1)
        found, own = self._read(others).softmax(-1).unbind(1)
        return total_variation(found, own).reshape(self._shape)

    def largest_js(self) -> Tensor:
        """The largest JS that any attention can have, (R, H); NaN for fewer than two items."""
        largest = largest_js(self._own, self._reach)
        return largest.masked_fill(self._reach.sum(-1) < 2, torch.nan).reshape(self._shape)
