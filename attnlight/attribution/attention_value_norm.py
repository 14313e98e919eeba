"""Attention weight times the size of what is attended to (Kobayashi et al., 2020)."""

from __future__ import annotations

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
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import layer_attention, output_maps, read_shares, value_norms
from attnlight.probing.row_gradients import text_of_rows


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
            bias = output.bias.double().expand_as(output.logits)[:, None, None] / weights.shape[1]
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
