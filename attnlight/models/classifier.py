"""A classifier of one text: embedding, encoder, attention and an affine layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models.attention import ATTENTIONS
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS


class FlatClassifier(nn.Module):
    """The classifier of Jain and Wallace (2019): an affine layer over attention's mean state.

    Two classes have one logit z and come out as (0, z).

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        encoder: What turns embeddings into the states that attention attends to.
        attention: How a state is scored.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction for the recurrent ones.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the embeddings as they start.
        dropout: Dropout on the context, before the classification layer.

    Raises:
        InputError: Fewer than two classes, or sizes that do not fit the encoder.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        encoder: Literal["bilstm", "bigru", "cnn", "average", "none"] = "bilstm",
        attention: Literal["additive", "dot", "scaled_dot", "uniform"] = "additive",
        embedding_size: int = 300,
        hidden_size: int = 128,
        embedding_scale: float = 0.1,
        freeze_embeddings: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes is {num_classes}; a classifier needs at least 2")
        self.embedding = Embedding(vocab_size, embedding_size, embedding_scale, freeze_embeddings)
        self.encoder = ENCODERS[encoder](embedding_size, hidden_size)
        self.attention = ATTENTIONS[attention](self.encoder.output_size)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(self.encoder.output_size, num_classes if num_classes > 2 else 1)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Boundary tokens are encoded but never attended to. A text with nothing to attend to has
        weights of zero and the logits of an empty context.

        Args:
            batch: B texts of N tokens.
            weights: Attention to use in place of the model's own, (B, 1, N).
            embeddings: Token embeddings to use in place of `embed(batch)`, (B, N, E).

        Returns:
            One row per text, R = B, and one head. `item_logits` is None in training mode; at
            padding it is finite and means nothing.
        """
        embeddings = self.embed(batch) if embeddings is None else embeddings
        # Under autocast, states and logits come in half precision; what tests read is not.
        states: Tensor = self.encoder(embeddings, batch.mask).to(embeddings.dtype)
        mask = batch.attendable()
        if weights is None:
            weights = self.attention(states, mask).unsqueeze(1)
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=self._classify(self.dropout((weights @ states).squeeze(1))),
            weights=weights,
            item_logits=None if self.training else self._classify(states).unsqueeze(1),
            bias=self._classes(self.decoder.bias),
            mask=mask,
            states=states,
        )

    def embed(self, batch: TextBatch) -> Tensor:
        """Token embeddings (B, N, E), zero on padding."""
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (B, K, C) of K candidate attentions (B, 1, K, N) over the states of `output`."""
        return self._classify(weights.squeeze(1) @ output.states)

    def _classify(self, states: Tensor) -> Tensor:
        return self._classes(self.decoder(states).to(self.decoder.weight.dtype))

    def _classes(self, logits: Tensor) -> Tensor:
        """(..., C) of the decoder's (..., C), or of its (..., 1) where there are two classes."""
        return pad(logits, (1, 0)) if self.decoder.out_features == 1 else logits
