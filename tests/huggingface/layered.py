"""Small random classifiers of text by transformers' models, as `LayeredModel`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.huggingface.attention import attention_layers
from attnlight.probing.interception import intercept
from tests.huggingface.models import DECODERS, build

CLASSES = 3


class Layered(nn.Module):
    """A sequence classifier whose attention is that of the last layer, of the token it reads."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        auto = "AutoModelForSequenceClassification"
        self.net = build(name, auto, num_labels=CLASSES, **options)
        self.last = name in DECODERS
        self.attention_layers = attention_layers(self.net)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        given: dict[str, Any] = {"input_ids": batch.tokens}
        if embeddings is not None:
            given = {"inputs_embeds": embeddings}
        with intercept(record="all") as found:
            logits = self.net(**given, attention_mask=batch.mask.long()).logits
        texts, places = torch.arange(len(batch)), torch.arange(batch.tokens.shape[1])
        first = batch.mask.int().argmax(-1)
        self.read = (batch.mask * places).amax(-1) if self.last else first
        last = found[len(found) - 1]
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=logits,
            weights=last.weights[texts, :, self.read],
            item_logits=None,
            bias=logits.detach(),
            mask=batch.mask,
            states=self.embed(batch),
            layers=tuple(found[layer].weights for layer in range(len(found))),
        )

    def embed(self, batch: TextBatch) -> Tensor:
        embedded: Tensor = self.net.get_input_embeddings()(batch.tokens)
        return embedded

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        raise NotImplementedError


def texts(padding: str = "right") -> TextBatch:
    """Four texts of at most 9 tokens, with padding on one side."""
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, 50, (4, 9), generator=random)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for row, length in enumerate((9, 6, 3, 8)):
        mask[row, {"right": slice(length, None), "left": slice(9 - length)}[padding]] = False
    return TextBatch(torch.arange(4) + 20, tokens * mask, mask)
