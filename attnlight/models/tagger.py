"""A tagger: each token attends to the tokens of its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.classifier import make_dropout
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import BiLSTM
from attnlight.models.tagging import READOUTS, Decoder, ReadoutName, StudyReadout
from attnlight.models.tokens import TokenFeatures
from attnlight.models.transformer import EncoderLayer, SelfAttention, sinusoids

TaggerEncoder = Literal["transformer", "bilstm", "tokens"]

# Numbers of a block of candidate attentions that are read at once: on a CPU what stays in its cache,
# 1 MiB in single precision, on an accelerator 16 MiB.
_CPU_BLOCK, _ACCELERATOR_BLOCK = 1 << 18, 1 << 22
_VALUES = "values"  # in `AttentionOutput.memory`: of the last attention
_ALONE = {"encoder": "tokens", "layers": 1, "readout": "text"}


class SelfAttentionTagger(nn.Module):
    """A transformer or BiLSTM over which every token attends to its sentence, and a readout.

    An instance is a token: R is the number of real tokens of a batch, in the order of their texts,
    or of those that are `marked` where the batch says which.
    The attention that tests see is the last layer's.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of tags C.
        features: Number of ids of each feature of `TextBatch.extras` to read.
        encoder: What stands below the layers of attention: a linear map and sinusoidal positions,
            a BiLSTM, or, `tokens`, an affine map and tanh of each token alone, without positions.
        readout: `study`: residual, feed-forward, layer norm, affine; not affine in attention.
            `text`: the affine layer alone; a token reaches its own tag only through its attention
            to itself. `residual`: the affine layer over the sum with the token's own state.
        layers: Layers of attention L; those before the last have residual and feed-forward parts.
        heads: Heads H of each.
        hidden_size: Size D of a state.
        filter_size: Size within the feed-forward parts.
        embedding_size: Size of a word's embedding.
        feature_size: Size of each feature's embedding.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the words' embeddings as they start.
        dropout: Dropout on what enters the first layer.
        attention_dropout: Dropout on attention weights.
        relu_dropout: Dropout within the feed-forward parts.
        uniform_heads: Heads of the last layer that weigh all tokens of the sentence alike, without
            queries and keys.
        uniform_below: Let all heads of the layers below do so.

    Raises:
        InputError: Fewer than two tags, a dropout outside [0, 1), sizes that do not fit, or no such
            head.

    Attributes:
        pairwise: What it says of a text takes memory for each pair of its items.
    """

    pairwise: ClassVar[bool] = True

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        features: Mapping[str, int] | None = None,
        encoder: TaggerEncoder = "transformer",
        readout: ReadoutName = "study",
        layers: int = 1,
        heads: int = 4,
        hidden_size: int = 128,
        filter_size: int = 128,
        embedding_size: int = 100,
        feature_size: int = 32,
        embedding_scale: float = 0.1,
        freeze_embeddings: bool = False,
        dropout: float = 0.2,
        attention_dropout: float = 0.2,
        relu_dropout: float = 0.2,
        uniform_heads: Sequence[int] = (),
        uniform_below: bool = False,
    ) -> None:
        super().__init__()
        _require_sizes(num_classes, layers, hidden_size)
        self.embedding = Embedding(vocab_size, embedding_size, embedding_scale, freeze_embeddings)
        self.features = TokenFeatures(features or {}, feature_size, embedding_scale)
        size = embedding_size + self.features.output_size
        self.encoder = encoder
        alone = encoder == "tokens"
        self.projection = nn.Linear(size, hidden_size, bias=alone) if encoder != "bilstm" else None
        self.recurrent = BiLSTM(size, hidden_size // 2) if encoder == "bilstm" else None
        self.dropout = make_dropout("dropout", dropout)
        sizes = (hidden_size, heads, filter_size)
        self.layers = nn.ModuleList(
            EncoderLayer(*sizes, attention_dropout, relu_dropout, uniform_below)
            for _ in range(layers - 1)
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.attention = SelfAttention(hidden_size, heads, attention_dropout, uniform_heads)
        self.decoder: Decoder = READOUTS[readout](
            hidden_size, num_classes, filter_size, relu_dropout
        )

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        """Options of the same tagger with uniform attention, see `models.build`."""
        if head is None:
            return net | {"uniform_heads": list(range(net["heads"])), "uniform_below": True}
        return net | {"uniform_heads": [*net.get("uniform_heads", ()), head]}

    @staticmethod
    def guided_net(
        net: dict[str, Any], guide: str, context: str | None, query_key: bool
    ) -> dict[str, Any]:
        """Options of a tagger whose last attention is given: queries and keys only where asked for."""
        net = net | (_ALONE if context == "tokens" else {})
        if query_key:
            return net | {"uniform_heads": []}
        return net if guide == "learned" else net | {"uniform_heads": list(range(net["heads"]))}

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the tokens and their features side by side, (B, N, E), zero on padding."""
        return torch.cat([self.embedding(batch.tokens), *self.features(batch)], dim=-1)

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Args:
            batch: B sentences of N tokens, each of at least one.
            weights: Attention of the last layer in place of the model's own, (R, H, N).
            embeddings: Token embeddings to use in place of `embed(batch)`, (B, N, E).

        Returns:
            One row per token of `TextBatch.instances`. `states` (B, N, D) are the tokens' own, before the layer norm
            that attention reads them through. `item_logits` is an expanded view where the batch is
            one sentence and the readout is `text`, since a sentence's tokens share them; rows of
            several sentences have copies. It is None where the readout is `study`, and in training,
            when the bias of `study` is NaN.

        Raises:
            InputError: The batch has texts of sentences.
        """
        if batch.tokens.ndim != 2:
            raise InputError("a tagger reads sentences by themselves: set `sentences` to none.")
        mask = batch.attendable()
        text, position = batch.instances().nonzero().unbind(-1)
        states, layers = self._encode(batch, embeddings)
        normed = self.norm(states)
        if weights is None:
            grid = self._attend(batch, normed, mask)
            weights = grid[text, :, position]
        else:
            grid = on_grid(weights, text, position, mask)
        values = self.attention.values(normed)
        own = states[text, position]
        contexts = self.attention.mix(grid, values)[text, position]
        bias = self._bias(own)
        return AttentionOutput(
            rows=torch.stack([batch.index[text], position], dim=1),
            logits=self.decoder(contexts, own).to(states.dtype),
            weights=weights,
            item_logits=None if self.training else self._item_logits(values, text, bias),
            bias=bias.to(states.dtype),
            mask=mask[text],
            states=states,
            layers=layers or None,
            memory={_VALUES: values},
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) over the states of `output`."""
        values = output.memory[_VALUES]  # (B, H, N, D / H)
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        own = output.states[text, position].unsqueeze(1)
        cost = weights.shape[1:].numel() + values.shape[1:].numel()
        block = _CPU_BLOCK if text.device.type == "cpu" else _ACCELERATOR_BLOCK
        places = torch.arange(len(text), device=text.device)
        logits = []
        for rows in torch.split(places, max(1, block // cost)):
            contexts = weights[rows] @ values[text[rows]]  # (r, H, K, D / H)
            logits.append(self.decoder(contexts.transpose(1, 2).flatten(2), own[rows]))
        return torch.cat(logits).to(own.dtype)

    def _attend(self, batch: TextBatch, normed: Tensor, mask: Tensor) -> Tensor:
        """Attention of the last layer, (B, H, N, N), of normed states (B, N, D)."""
        return self.attention.weights(normed, mask)

    def _bias(self, own: Tensor) -> Tensor:
        """Logits of an empty context; NaN where they would cost a readout that training lacks."""
        if self.training and isinstance(self.decoder, StudyReadout):
            return own.new_full((self.decoder.decoder.out_features,), torch.nan)
        return self.decoder.bias(own)

    def _encode(
        self, batch: TextBatch, embeddings: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """States (B, N, D) that the last attention reads, and the attention of the layers below."""
        embeddings = self.embed(batch) if embeddings is None else embeddings
        if self.recurrent is not None:
            states = self.recurrent(self.dropout(embeddings), batch.mask)
        else:
            assert self.projection is not None
            projected = self.projection(embeddings)
            if self.encoder == "tokens":
                projected = torch.tanh(projected)
            else:
                projected = projected + sinusoids(batch.tokens.shape[1], projected)
            states = self.dropout(projected)
        # Under autocast, states come in half precision; what tests read is not.
        states = states.to(embeddings.dtype)
        attention = []
        for layer in self.layers:
            states, weights = layer(states, batch.mask)
            attention.append(weights)
        return states, tuple(attention)

    def _item_logits(self, values: Tensor, text: Tensor, bias: Tensor) -> Tensor | None:
        """Item logits (R, H, N, C) of R tokens of texts (R,), their bias (C,) or (R, C) folded in."""
        items = self.decoder.item_logits(values)
        if items is None:
            return None
        shared = bias.to(items.dtype) / items.shape[1]
        if bias.ndim == 1:
            items = items + shared
        items = items.expand(len(text), -1, -1, -1) if len(items) == 1 else items[text]
        return items if bias.ndim == 1 else items + shared[:, None, None]


def on_grid(weights: Tensor, text: Tensor, position: Tensor, mask: Tensor) -> Tensor:
    """Attention (R, H, N) of tokens at their places, (B, H, N, N), zero for other queries."""
    texts, items = mask.shape
    grid = weights.new_zeros(texts, items, *weights.shape[1:])
    return grid.index_put((text, position), weights).transpose(1, 2)


def _require_sizes(num_classes: int, layers: int, hidden_size: int) -> None:
    if num_classes < 2:
        raise InputError(f"num_classes is {num_classes}; a tagger needs at least 2.")
    if layers < 1:
        raise InputError(f"layers is {layers}; it must be at least 1.")
    if hidden_size < 4 or hidden_size % 2:
        raise InputError(f"hidden_size is {hidden_size}; it must be even and at least 4.")
