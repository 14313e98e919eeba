"""Attention as an explanation: the weights, alone and times what they weigh."""

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import (
    AttentionModel,
    AttentionOutput,
    HasTransformedStates,
    LayeredModel,
    TextBatch,
)
from attnlight.errors import InputError
from attnlight.functional.masking import allowed_classes
from attnlight.functional.readout.instances import empty_logits
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import layer_attention, output_maps, read_shares, value_norms
from attnlight.probing.row_gradients import text_of_rows


@dataclass
class Attention(Attribution):
    """The attention weight of each item, mean over heads; the same for all classes."""

    name = "attention"
    signed = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        return output.weights.double().mean(1), {}


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
        weights, bias = (
            output.weights.double(),
            (empty_logits(model, output).double() * direction).sum(-1),
        )
        items = torch.einsum("rhnc,rc->rhn", output.item_logits.double(), direction)
        return (weights * (items - bias[:, None, None] / weights.shape[1])).sum(1), {}


@dataclass
class AttentionValueNorm(Attribution):
    """L2 norm of the sum over heads of attention weight times transformed state, for all classes.

    The transformed state f_h(x) is what an item would add to the input of the next layer if a head
    had all its attention there. Where the readout is affine in attention the next layer is the
    softmax, and f_h(x) are the item's logits without the bias, minus their mean over the allowed
    classes, which changes no prediction. Elsewhere the model gives it: a pair classifier its
    decoder's map of a state, a tagger of the readout `study` the values after the output projection.
    Of a transformer these are found by the map that its last layer applies to the contexts, and the
    row is that of the token which is read.
    """

    name = "attention_value_norm"
    signed = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        weights = output.weights.double()
        if output.item_logits is not None:
            allowed = allowed_classes(output.logits)[:, None, None]
            bias = empty_logits(model, output).double().expand_as(output.logits)[:, None, None]
            bias = bias / weights.shape[1]
            items = (output.item_logits.double() - bias).masked_fill(~allowed, 0.0)
            mean = items.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
            items = (items - mean).masked_fill(~allowed, 0.0)
            return torch.einsum("rhn,rhnc->rnc", weights, items).norm(dim=-1), {}
        if isinstance(model, HasTransformedStates):
            states = model.transformed_states(output).double()  # (B, H, N, D)
            products = torch.einsum("bhnd,bgnd->bnhg", states, states)[text_of_rows(batch, output)]
            squares = torch.einsum("rhn,rnhg,rgn->rn", weights, products, weights)
            return squares.clamp(min=0.0).sqrt(), {}
        if isinstance(model, LayeredModel):
            last, output_map = layer_attention(model, batch)[-1], output_maps(model, batch)[-1]
            norms = value_norms(last, output_map)[text_of_rows(batch, output)]
            of_tokens = torch.einsum("rq,rqn->rn", read_shares(model, batch, output), norms)
            return FlatTexts.of(batch).sums(of_tokens), {}
        raise InputError(
            f"{self.name} needs logits that are affine in attention or a model with the method "
            f"transformed_states(output), and {type(model).__name__} has neither."
        )
