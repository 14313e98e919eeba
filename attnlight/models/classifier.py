"""Classifiers of one text: what they share, and the flat one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import reencode
from attnlight.models.attention import ATTENTIONS, AttentionName
from attnlight.models.deletion import AttentionLayer, leave_out_tokens
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS, EncoderName
from attnlight.models.initialization import Initialization, initialize

DropoutOn = Literal["context", "logits"]


class AffineClassifier(nn.Module, ABC):
    """What classifiers share that put an affine layer over attention's mean state.

    Two classes have one logit z and come out as (0, z). A subclass adds what stands between the
    embedding and the affine layer, then calls `_end`.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        embedding_size: Size E of a token embedding.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the embeddings as they start.
        embedding_dropout: Dropout on token embeddings, before the encoder.
        dropout: Dropout of the classification layer.
        dropout_on: Whether `dropout` acts on the context or on the logits.

    Raises:
        InputError: Fewer than two classes, or a dropout outside [0, 1).
    """

    embedding: Embedding
    decoder: nn.Linear

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        embedding_size: int,
        embedding_scale: float,
        freeze_embeddings: bool,
        embedding_dropout: float,
        dropout: float,
        dropout_on: DropoutOn,
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes is {num_classes}; a classifier needs at least 2")
        self.embedding = Embedding(vocab_size, embedding_size, embedding_scale, freeze_embeddings)
        self.embedding_dropout = make_dropout("embedding_dropout", embedding_dropout)
        self.dropout = make_dropout("dropout", dropout)
        self.dropout_on = dropout_on

    def _end(self, size: int, num_classes: int, initialization: Initialization) -> None:
        """Add the affine layer from contexts of `size`, and start the parameters."""
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        initialize(self, initialization)

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        """Options of the same classifier with uniform attention, see `models.build`."""
        if head is not None:
            raise InputError(f"head is {head}, but the attention of a classifier has one head.")
        return net | {"attention": "uniform"}

    @staticmethod
    def guided_net(
        net: dict[str, Any], guide: str, context: str | None, query_key: bool
    ) -> dict[str, Any]:
        """Options of a classifier that reads each word alone: the MLP of Wiegreffe & Pinter."""
        if context == "full" or query_key:
            raise InputError(
                "a guided classifier reads words alone: context full and query_key "
                "are options of a tagger."
            )
        attention = "additive" if guide == "learned" else "uniform"
        return net | {"encoder": "average", "attention": attention, "attention_size": None}

    @abstractmethod
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """As `AttentionModel` says."""

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the batch's tokens, (B, N, E) or (B, S, N, E), zero on padding."""
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (B, K, C) of K candidate attentions (B, 1, K, N) over the states of `output`."""
        return self._classify(weights.squeeze(1) @ output.states)

    def _output(
        self,
        batch: TextBatch,
        states: Tensor,
        weights: Tensor,
        mask: Tensor,
        layers: tuple[Tensor, ...] | None = None,
    ) -> AttentionOutput:
        """What weights (B, 1, N) over states (B, N, D) say, as `AttentionOutput` describes it."""
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=self._read(weights, states),
            weights=weights,
            item_logits=None if self.training else self._classify(states).unsqueeze(1),
            bias=self._classes(self.decoder.bias),
            mask=mask,
            states=states,
            layers=layers,
        )

    def _read(self, weights: Tensor, states: Tensor) -> Tensor:
        """Logits (B, C) of weights (B, 1, N) over states (B, N, D), with dropout in training."""
        context = (weights @ states).squeeze(1)
        if self.dropout_on == "logits":
            logits: Tensor = self.dropout(self._classify(context))
            return logits
        return self._classify(self.dropout(context))

    def _classify(self, states: Tensor) -> Tensor:
        return self._classes(self.decoder(states).to(self.decoder.weight.dtype))

    def _classes(self, logits: Tensor) -> Tensor:
        """(..., C) of the decoder's (..., C), or of its (..., 1) where there are two classes."""
        return pad(logits, (1, 0)) if self.decoder.out_features == 1 else logits


class FlatClassifier(AffineClassifier):
    """Words to one text: the classifier of Jain and Wallace (2019), Serrano and Smith's FLAN.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        encoder: What turns embeddings into the states that attention attends to.
        attention: How a state is scored.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction for the recurrent ones.
        attention_size: Size of additive attention's hidden layer; None: half a state.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the embeddings as they start.
        embedding_dropout: Dropout on token embeddings, before the encoder.
        dropout: Dropout of the classification layer.
        dropout_on: Whether `dropout` acts on the context, before the layer, or on the logits.
        initialization: How parameters start, see `attnlight.models.initialization`.

    Raises:
        InputError: Fewer than two classes, a dropout outside [0, 1), or sizes that do not fit.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        encoder: EncoderName = "bilstm",
        attention: AttentionName = "additive",
        embedding_size: int = 300,
        hidden_size: int = 128,
        attention_size: int | None = None,
        embedding_scale: float = 0.1,
        freeze_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        dropout: float = 0.0,
        dropout_on: DropoutOn = "context",
        initialization: Initialization = "default",
    ) -> None:
        super().__init__(
            vocab_size,
            num_classes,
            embedding_size,
            embedding_scale,
            freeze_embeddings,
            embedding_dropout,
            dropout,
            dropout_on,
        )
        self.encoder = ENCODERS[encoder](embedding_size, hidden_size)
        size = self.encoder.output_size
        self.attention = ATTENTIONS[attention](size, attention_size=attention_size)
        self._end(size, num_classes, initialization)

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

        Raises:
            InputError: The batch has sentences.
        """
        if batch.tokens.ndim != 2:
            raise InputError(
                "the model reads flat texts, but the corpus gives sentences: set `sentences: "
                "false` in `data`, or `hierarchical: true` in `model`."
            )
        embeddings = self.embedding_dropout(self.embed(batch) if embeddings is None else embeddings)
        # Under autocast, states and logits come in half precision; what tests read is not.
        states: Tensor = self.encoder(embeddings, batch.mask).to(embeddings.dtype)
        mask = batch.attendable()
        if weights is None:
            weights = self.attention(states, mask).unsqueeze(1)
        return self._output(batch, states, weights, mask)

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, N, C) after each token is deleted, as `functional.reencode` gives them."""
        layer = AttentionLayer(self.encoder, self.attention, self._classify)
        if not layer.known or type(self).forward is not FlatClassifier.forward:
            return reencode(self, batch, output, budget)
        return leave_out_tokens(layer, self.embed, batch, output.mask, budget)


def make_dropout(name: str, probability: float) -> nn.Dropout:
    """A dropout layer; `name` is what messages call it."""
    if not 0 <= probability < 1:
        raise InputError(f"{name} is {probability}; it must be at least 0 and below 1.")
    return nn.Dropout(probability)
