"""From a token's attention to its logits: the readouts of a tagger."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.models.options import ReadoutName
from attnlight.models.transformer import AfterAttention


class Decoder(nn.Module):
    """What follows the last attention, of which the heads' contexts lie side by side.

    `study` is the released encoder of Yang (2020): h = x + MHA(LN x), y = h + FF(LN h), LN, affine.
    It is not affine in attention. `text` is what that report says: an affine layer over the
    contexts. A token then reaches its own tag only through its attention to itself. `residual` is
    an affine layer over the sum of the contexts and the token's own state: affine in attention,
    with a bias per token, which is what the token says by itself.

    Args:
        readout: Which of them.
        size: Size D of a state, and of the contexts.
        classes: Number of classes C.
        filter_size: Size within the feed-forward part of `study`.
        dropout: Dropout there.
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
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        """Logits (..., C) of contexts (..., D) of tokens whose own states are (..., D)."""
        if self.after is not None and self.norm is not None:
            states = self.norm(self.after(contexts, own))
        else:
            states = contexts + own if self.readout == "residual" else contexts
        logits: Tensor = self.decoder(states)
        return logits

    def affine_terms(
        self, values: Tensor, text: Tensor, own: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """What logits are made of where they are affine in attention: item logits and bias.

        Args:
            values: Those of the last attention, (B, H, N, D / H).
            text: Of which text each row is, (R,).
            own: Own states of the rows' tokens, (R, D).

        Returns:
            Item logits (R, H, N, C) with the bias folded in, an expanded view where all rows are of
            one text; None where logits are not affine, and in training, when nothing reads them.
            And the logits of an empty context, (R, C), or (C,) where they are one for all tokens;
            while `study` trains NaN (C,): they would cost a readout that nothing needs.
        """
        bias: Tensor
        if self.readout == "text":
            bias = self.decoder.bias
        elif self.training and self.after is not None:
            bias = own.new_full((self.decoder.out_features,), torch.nan)
        else:
            bias = self(torch.zeros_like(own), own)
        if self.training or self.after is not None:
            return None, bias
        weight = self.decoder.weight.view(len(self.decoder.weight), values.shape[1], -1)
        items = torch.einsum("bhnd,chd->bhnc", values, weight.to(values.dtype))
        shared = bias.to(items.dtype) / items.shape[1]
        if bias.ndim == 1:
            items = items + shared
        items = items.expand(len(text), -1, -1, -1) if len(items) == 1 else items[text]
        return items if bias.ndim == 1 else items + shared[:, None, None], bias
