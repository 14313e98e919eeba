"""From a token's attention to its logits: the readouts of a tagger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.models.transformer import AfterAttention

ReadoutName = Literal["study", "text", "residual"]


class Decoder(nn.Module, ABC):
    """What all readouts share.

    Args:
        size: Size D of a state and of the heads' contexts side by side.
        classes: Number of classes C.
        filter_size: Size within the feed-forward part, where there is one.
        dropout: Dropout there.
    """

    def __init__(self, size: int, classes: int, filter_size: int, dropout: float) -> None:
        super().__init__()
        self.decoder = nn.Linear(size, classes)

    @abstractmethod
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        """Logits (..., C) of contexts (..., D) of tokens whose own states are (..., D)."""

    def bias(self, own: Tensor) -> Tensor:
        """Logits of an empty context, (R, C), or (C,) where they are one for all tokens."""
        return self(torch.zeros_like(own), own)  # type: ignore[no-any-return]

    def item_logits(self, values: Tensor) -> Tensor | None:
        """What values (B, H, N, D / H) add to the logits, (B, H, N, C); None if not affine."""
        classes = self.decoder.out_features
        weight = self.decoder.weight.view(classes, values.shape[1], -1)
        return torch.einsum("bhnd,chd->bhnc", values, weight.to(values.dtype))


class StudyReadout(Decoder):
    """h = x + MHA(LN x), y = h + FF(LN h), LN, affine: the released encoder of Yang (2020).

    It is not affine in attention.

    Args:
        size: Size D of a state.
        classes: Number of classes C.
        filter_size: Size within the feed-forward part.
        dropout: Dropout there.
    """

    def __init__(self, size: int, classes: int, filter_size: int, dropout: float) -> None:
        super().__init__(size, classes, filter_size, dropout)
        self.after = AfterAttention(size, filter_size, dropout)
        self.norm = nn.LayerNorm(size)

    @override
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.norm(self.after(contexts, own)))
        return logits

    @override
    def item_logits(self, values: Tensor) -> None:
        return None


class TextReadout(Decoder):
    """An affine layer over the heads' contexts side by side: what the report of Yang (2020) says.

    A token reaches its own tag only through its attention to itself.

    Args:
        size: Size D of the contexts.
        classes: Number of classes C.
        filter_size: Not used.
        dropout: Not used.
    """

    @override
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        logits: Tensor = self.decoder(contexts)
        return logits

    @override
    def bias(self, own: Tensor) -> Tensor:
        return self.decoder.bias


class ResidualReadout(Decoder):
    """An affine layer over the sum of the heads' contexts and the token's own state.

    It is affine in attention, with a bias per token: what the token says by itself.

    Args:
        size: Size D of a state.
        classes: Number of classes C.
        filter_size: Not used.
        dropout: Not used.
    """

    @override
    def forward(self, contexts: Tensor, own: Tensor) -> Tensor:
        logits: Tensor = self.decoder(contexts + own)
        return logits


READOUTS: dict[str, type[Decoder]] = {
    "study": StudyReadout,
    "text": TextReadout,
    "residual": ResidualReadout,
}
