"""A tagger: each token attends to the tokens of its sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional._cpu import Budget
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.context import refuse_queries
from attnlight.models.decoder import Decoder
from attnlight.models.embedding import Embedding, TokenFeatures
from attnlight.models.encoders import BiLSTM
from attnlight.models.guided import Guide
from attnlight.models.options import TaggerNet, group_of
from attnlight.models.transformer import EncoderLayer, SelfAttention, sinusoids
from attnlight.probing.interception import interception_of, number_layers
from attnlight.probing.leave_one_out import reencode

# Elements in a block of candidate attentions: 1 MiB in single precision, which fits the cache of a
# CPU, and 16 MiB on an accelerator.
_BLOCK = Budget(1 << 18, 1 << 22)
_VALUES = "values"  # in `AttentionOutput.memory`: values of the last attention
# Columns of `TextBatch.extras` with the origin of each token of a shortened sentence.
_TEXT, _POSITION = "text of the batch", "position in the text"


class SelfAttentionTagger(nn.Module):
    """A transformer or BiLSTM whose tokens attend to their sentence, and a readout.

    An instance is a token: R is the number of real tokens of a batch, in the order of their texts,
    or of its `marked` tokens if the batch has such a column. Tests see the attention of the last
    layer.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of tags C.
        features: Number of ids of each feature of `TextBatch.extras` that the model uses.
        uniform_heads: Heads of the last layer with uniform attention, without queries and keys.
        uniform_below: Whether all heads of the layers below have uniform attention.
        options: Options of `TaggerNet`.

    Attributes:
        pairwise: Whether the output for a text takes memory for each pair of its items.
        reach: Number of tokens on either side on which a state depends; None: all.
        parameter_parts: The modules of each part by name, from the output down, see `part_names`.
        guide: Source of the last layer's attention; None: the model's queries and keys. If all heads
            are in `uniform_heads`, there are no queries and keys, and attention is the guide's; if
            none are, the guide's attention is a prior, see `SelfAttention`.

    Raises:
        InputError: There are fewer than two tags, a dropout is outside [0, 1), sizes do not fit, or
            a head does not exist.
    """

    pairwise: ClassVar[bool] = True

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        features: Mapping[str, int] | None = None,
        uniform_heads: Sequence[int] = (),
        uniform_below: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__()
        net = group_of(TaggerNet, options)
        require_at_least(2, num_classes=num_classes)
        require_at_least(1, layers=net.layers)
        if net.hidden_size < 4 or net.hidden_size % 2:
            raise InputError(f"hidden_size is {net.hidden_size}; it must be even and at least 4.")
        self.encoder = net.encoder
        self.guide: Guide | None = None
        self.embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
        self.features = TokenFeatures(features or {}, net.feature_size, net.embedding_scale)
        input_size, size = net.embedding_size + self.features.output_size, net.hidden_size
        bias, recurrent = net.encoder == "tokens", net.encoder == "bilstm"
        self.projection = None if recurrent else nn.Linear(input_size, size, bias=bias)
        self.recurrent = BiLSTM(input_size, size // 2) if recurrent else None
        self.dropout = nn.Dropout(net.dropout)
        dropouts = net.attention_dropout, net.relu_dropout
        self.layers = nn.ModuleList(
            EncoderLayer(size, net.heads, net.filter_size, *dropouts, uniform_below, net.normalizer)
            for _ in range(net.layers - 1)
        )
        self.norm = nn.LayerNorm(size)
        self.attention = SelfAttention(
            size, net.heads, net.attention_dropout, uniform_heads, net.normalizer
        )
        self.decoder = Decoder(net.readout, size, num_classes, net.filter_size, net.relu_dropout)
        number_layers(lambda: [interception_of(layer) for layer in self.attention_layers])
        self.reach = 0 if net.encoder == "tokens" and net.layers == 1 else None
        layers = {f"layer_{n}": (f"layers.{n - 1}",) for n in range(len(self.layers), 0, -1)}
        above = {"decoder": ("decoder",), "attention": ("attention", "norm")}
        below = {"encoder": ("projection", "recurrent"), "embedding": ("embedding", "features")}
        self.parameter_parts = above | layers | below

    @property
    def attention_layers(self) -> list[nn.Module]:
        """The modules that compute the attention of each layer, see `LayeredModel`."""
        below = [layer.get_submodule("attention") for layer in self.layers]
        return [*below, self.attention]

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
        """Options of a tagger whose last attention a guide supplies, with `query_key` as a prior."""
        if context == "tokens":
            net = net | {"encoder": "tokens", "layers": 1, "readout": "text"}
        if query_key and (normalizer := net.get("normalizer", "softmax")) != "softmax":
            raise InputError(
                "query_key multiplies given attention by the exponential of scores, but the base has "
                f"normalizer {normalizer}: leave query_key out, or give a base with softmax."
            )
        if query_key:
            return net | {"uniform_heads": []}
        return net if guide == "learned" else net | {"uniform_heads": list(range(net["heads"]))}

    def embed(self, batch: TextBatch) -> Tensor:
        """Concatenated embeddings of tokens and their features, (B, N, E), zero on padding."""
        return torch.cat([self.embedding(batch.tokens), *self.features(batch)], dim=-1)

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Args:
            batch: B sentences of N tokens, each of at least one.
            weights: Attention that replaces the last layer's, (R, H, N).
            embeddings: Token embeddings that replace `embed(batch)`, (B, N, E).

        Returns:
            One row per token of `TextBatch.instances`. `states` (B, N, D) are those before the layer
            norm of the attention. `item_logits` is an expanded view if the batch is one sentence,
            whose tokens share them; None if the readout is `study`, and in training, where the `bias`
            of that readout is NaN.
        """
        if batch.tokens.ndim != 2:
            raise InputError("a tagger reads single sentences: set `sentences` to none.")
        refuse_queries(batch)
        mask = batch.attendable()
        text, position = batch.instances().nonzero().unbind(-1)
        states, layers = self._encode(batch, embeddings)
        grid = prior = None
        if weights is not None:
            grid = on_grid(weights, text, position, mask)
        elif self.guide is not None:
            prior = on_grid(self.guide(batch).to(states.dtype), text, position, mask)
        contexts, grid, values, scores = self.attention(self.norm(states), mask, grid, prior)
        token_states = states[text, position]
        items, bias = self.decoder.affine_terms(values, text, token_states)
        return AttentionOutput(
            rows=torch.stack([batch.index[text], position], dim=1),
            logits=self.decoder(contexts[text, position], token_states).to(states.dtype),
            weights=grid[text, :, position] if weights is None else weights,
            item_logits=items,
            bias=bias.to(states.dtype),
            mask=mask[text],
            states=states,
            layers=layers or None,
            memory={_VALUES: values},
            scores=None if scores is None else scores[text, :, position],
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) over the states of `output`."""
        values = output.memory[_VALUES]  # (B, H, N, D / H)
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        token_states = output.states[text, position].unsqueeze(1)
        cost = weights.shape[1:].numel() + values.shape[1:].numel()
        row_numbers = torch.arange(len(text), device=text.device)
        logits = []
        for rows in torch.split(row_numbers, max(1, _BLOCK.of(text) // cost)):
            contexts = weights[rows] @ values[text[rows]]  # (r, H, K, D / H)
            logits.append(self.decoder(contexts.transpose(1, 2).flatten(2), token_states[rows]))
        return torch.cat(logits).to(token_states.dtype)

    def transformed_states(self, output: AttentionOutput) -> Tensor:
        """What each head would add to a state or the logits if it attended to one item alone.

        The values after the map from the concatenated contexts, (B, H, N, D), or (B, H, N, C) where
        that gives logits.
        """
        values, after = output.memory[_VALUES], self.decoder.after
        weight = (self.decoder.decoder if after is None else after.output).weight
        by_head = weight.view(len(weight), values.shape[1], -1).to(values.dtype)
        return torch.einsum("bhnd,khd->bhnk", values, by_head)

    @torch.no_grad()
    def leave_one_out(
        self, batch: TextBatch, output: AttentionOutput, budget: int, only: Tensor | None = None
    ) -> Tensor:
        """Logits (R, N, C) without each item, as `functional.left_out_logits` returns them.

        A guide has attention for complete sentences only: its weights of the other items are
        renormalised.
        """
        if self.guide is None:
            return reencode(self, batch, output, budget)
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        guide, grid = self.guide, on_grid(self.guide(batch), text, position, batch.attendable())
        positions = torch.arange(batch.tokens.shape[1], device=text.device).expand_as(batch.tokens)
        texts = torch.arange(len(batch), device=text.device)[:, None].expand_as(batch.tokens)
        traced = replace(batch, extras=batch.extras | {_TEXT: texts, _POSITION: positions})

        def renormalized(shortened: TextBatch) -> Tensor:
            short_text, short_position = shortened.instances().nonzero().unbind(-1)
            full_text = shortened.extras[_TEXT][short_text, short_position]
            full_positions = shortened.extras[_POSITION]
            rows = grid[full_text, :, full_positions[short_text, short_position]]  # (r, H, N)
            items = full_positions[short_text].unsqueeze(1).expand(-1, rows.shape[1], -1)
            weights = rows.gather(-1, items) * shortened.attendable()[short_text].unsqueeze(1)
            return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)

        self.guide = renormalized
        try:
            return reencode(self, traced, output, budget)
        finally:
            self.guide = guide

    def _encode(
        self, batch: TextBatch, embeddings: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Input states (B, N, D) of the last attention, and the attention of the layers below."""
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
        # Under autocast, states are in half precision; tests need the full one.
        states = states.to(embeddings.dtype)
        attention = []
        for layer in self.layers:
            states, weights = layer(states, batch.mask)
            attention.append(weights)
        return states, tuple(attention)


def on_grid(weights: Tensor, text: Tensor, position: Tensor, mask: Tensor) -> Tensor:
    """Attention (R, H, N) of tokens scattered to (B, H, N, N), zero for other queries."""
    texts, items = mask.shape
    grid = weights.new_zeros(texts, items, *weights.shape[1:])
    return grid.index_put((text, position), weights).transpose(1, 2)
