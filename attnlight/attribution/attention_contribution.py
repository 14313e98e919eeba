"""Parts of the log odds that attention takes from each item."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError


@dataclass
class AttentionContribution(Attribution):
    """Attention weight times the item's logit without the bias, relative to the other classes.

    The item's part of the difference `z_target - sum over c of q_c z_c`, where q are the
    probabilities of the other classes, given that the target is not the answer: the log odds
    linearised at the prediction. With several heads it is the sum over them. For two classes the
    scores of a row sum to its log odds minus those of an empty context. Its values are those of
    `gradient_x_attention`, in closed form; a readout that is not affine has no such parts.
    """

    name = "attention_contribution"
    signed = True

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        if output.item_logits is None:
            raise InputError(
                f"{self.name} needs logits that are affine in attention, and the model's are not: "
                "choose gradient_x_attention, which is its counterpart."
            )
        chosen = target[:, None]
        rivals = output.logits.double().scatter(-1, chosen, -torch.inf).softmax(-1)
        direction = (-rivals).scatter(-1, chosen, 1.0)  # of z_target minus the rivals' mean
        weights, bias = output.weights.double(), (output.bias.double() * direction).sum(-1)
        items = torch.einsum("rhnc,rc->rhn", output.item_logits.double(), direction)
        return (weights * (items - bias[:, None, None] / weights.shape[1])).sum(1), {}
