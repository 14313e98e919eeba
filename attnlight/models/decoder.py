"""The readouts of a tagger: from a token's attention to its logits."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.models.options import ReadoutName
from attnlight.models.transformer import AfterAttention


class Decoder(nn.Module):
    """Layers after the last attention, whose input is the concatenation of the heads' contexts.

    `study` is the released encoder of Yang (2020): h = x + MHA(LN x), y = h + FF(LN h), LN, affine.
    It is not affine in attention. `text` follows the text of that report: an affine layer over the
    contexts. A token then influences its own tag only through its attention to itself. `residual`
    is an affine layer over the sum of the contexts and the token's state: affine in attention, with
    a bias per token, the token's direct contribution. `filter_size` and `dropout` are those of the
    feed-forward part of `study`.
    """

    def __init__(
        self, readout: ReadoutName, size: int, classes: int, filter_size: int, dropout: float
    ) -> None:
        super().__init__()
        self.readout = readout
        self.decoder = nn.Linear(size, classes)
        study = readout == "study"
        self.after = AfterAttention(size, filter_size, dropout) if study else None
        self.norm = nn.LayerNorm(size) if study else None

    @override
    def forward(self, contexts: Tensor, states: Tensor) -> Tensor:
        """Logits (..., C) of tokens with contexts (..., D) and states (..., D)."""
        if self.after is not None and self.norm is not None:
            features = self.norm(self.after(contexts, states))
        else:
            features = contexts + states if self.readout == "residual" else contexts
        logits: Tensor = self.decoder(features)
        return logits

    def affine_terms(
        self, values: Tensor, text: Tensor, states: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """Item logits and bias: the terms of logits that are affine in attention.

        Args:
            values: Values of the last attention, (B, H, N, D / H).
            text: Index of each row's text in the batch, (R,).
            states: States of the rows' tokens, (R, D).

        Returns:
            Item logits (R, H, N, C) with the bias folded in, as in `SelfAttentionTagger.forward`; and
            the logits of an empty context, (R, C), or (C,) if all tokens share them.
        """
        bias: Tensor
        if self.readout == "text":
            bias = self.decoder.bias
        elif self.training and self.after is not None:
            bias = states.new_full((self.decoder.out_features,), torch.nan)
        else:
            bias = self(torch.zeros_like(states), states)
        if self.training or self.after is not None:
            return None, bias
        weight = self.decoder.weight.view(len(self.decoder.weight), values.shape[1], -1)
        items = torch.einsum("bhnd,chd->bhnc", values, weight.to(values.dtype)).to(values.dtype)
        shared = bias.to(items.dtype) / items.shape[1]
        if bias.ndim == 1:
            items = items + shared
        items = items.expand(len(text), -1, -1, -1) if len(items) == 1 else items[text]
        return items if bias.ndim == 1 else items + shared[:, None, None], bias
