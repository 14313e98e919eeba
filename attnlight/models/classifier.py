"""Classifiers of one text: their base class, and the flat one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import reencode
from attnlight.functional.attribution.leave_one_out import blocks
from attnlight.models.attention import ATTENTIONS, Attention
from attnlight.models.deletion import leave_out, resumable
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS, Encoder
from attnlight.models.guided import Guide, leave_one_out_guided
from attnlight.models.options import ClassifierNet, group_of

# Input of the last encoder, (B, N, E); its real items, and those that attention may reach, (B, N)
# bool; indices (B, N, 1) that restore the batch's order of the states, None if it is unchanged; and
# the attention of the levels below.
Items = tuple[Tensor, Tensor, Tensor, Tensor | None, tuple[Tensor, ...] | None]
_PARTS = ("encoder", "attention")


class AffineClassifier(nn.Module, ABC):
    """Base of the classifiers with an affine layer over the attention-weighted mean state.

    For two classes the layer has one logit z, and the output is (0, z). Each level is an encoder
    and attention; a subclass names the levels and computes the input of the last encoder.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        options: Options of `ClassifierNet`; encoder and attention are the same at all levels.

    Attributes:
        levels: Prefix of the names of each level's `encoder` and `attention`.
        guide: Source of the attention that tests see; None: the model's attention. A model with a
            guide must encode each item alone: encoder `average` or `none`.

    Raises:
        InputError: There are fewer than two classes, a dropout is outside [0, 1), a model without
            sentences has dropout of sentences, or sizes do not fit.
    """

    levels: ClassVar[tuple[str, ...]]

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        super().__init__()
        net = group_of(ClassifierNet, options)
        if num_classes < 2:
            raise InputError(f"num_classes is {num_classes}; a classifier needs at least 2")
        if net.sentence_dropout and len(self.levels) == 1:
            raise InputError(
                f"sentence_dropout is {net.sentence_dropout}, but a model that is not hierarchical "
                "has no sentences."
            )
        self.embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
        self.embedding_dropout = nn.Dropout(net.embedding_dropout)
        self.sentence_dropout = nn.Dropout(net.sentence_dropout)
        self.dropout = nn.Dropout(net.dropout)
        self.dropout_on = net.dropout_on
        self.guide: Guide | None = None
        size = net.embedding_size
        for level in self.levels:
            encoder = ENCODERS[net.encoder](size, net.hidden_size)
            size = encoder.output_size
            attention = ATTENTIONS[net.attention](size, attention_size=net.attention_size)
            for kind, module in zip(_PARTS, (encoder, attention), strict=True):
                self.add_module(level + kind, module)
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        if net.initialization == "xavier":
            for part in self.modules():
                if isinstance(part, nn.Linear | nn.RNNBase):
                    for name, parameter in part.named_parameters():
                        if name.startswith("bias"):
                            nn.init.zeros_(parameter)
                        elif name.startswith("weight_hh"):
                            nn.init.orthogonal_(parameter)
                        else:
                            nn.init.xavier_uniform_(parameter)

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
        """Options of a classifier that encodes each word alone: the MLP of Wiegreffe & Pinter."""
        if context == "full" or query_key:
            raise InputError(
                "a guided classifier reads words alone: context full and query_key "
                "are options of a tagger."
            )
        attention = "additive" if guide == "learned" else "uniform"
        return net | {"encoder": "average", "attention": attention, "attention_size": None}

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the batch's tokens, (B, N, E) or (B, S, N, E), zero on padding."""
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Boundary tokens are encoded but never attended to. A text with nothing to attend to has
        weights of zero and the logits of an empty context.

        Args:
            batch: B texts of N tokens, or of S sentences of tokens, which then are the N items.
            weights: Attention over the items that replaces the model's, (B, 1, N).
            embeddings: Token embeddings that replace `embed(batch)`, of the same shape.

        Returns:
            One row per text, R = B, and one head; `states` are (B, N, D). `item_logits` is None in
            training mode; at padding it is finite and arbitrary.

        Raises:
            InputError: The batch has sentences and the model reads none, or the reverse, or the
                guide has no attention for its texts.
        """
        items, seen, mask, places, layers = self._items(batch, embeddings)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in _PARTS)
        # Under autocast, states and logits are in half precision; tests need the full one.
        states: Tensor = encoder(items, seen).to(items.dtype)
        if places is not None:
            states = states.gather(1, places.expand_as(states))
            mask = mask.gather(1, places.squeeze(-1))
        if weights is None:
            guide = self.guide
            weights = attention(states, mask).unsqueeze(1) if guide is None else guide(batch)
        context = (weights @ states).squeeze(1)
        if self.dropout_on == "logits":
            logits = self.dropout(self._classify(context))
        else:
            logits = self._classify(self.dropout(context))
        bias = self.decoder.bias
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=logits,
            weights=weights,
            item_logits=None if self.training else self._classify(states).unsqueeze(1),
            bias=bias if len(bias) > 1 else pad(bias, (1, 0)),
            mask=mask,
            states=states,
            layers=layers,
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (B, K, C) of K candidate attentions (B, 1, K, N) over the states of `output`."""
        return self._classify(weights.squeeze(1) @ output.states)

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, N, C) after each item is deleted, as `functional.reencode` returns them."""
        if self.guide is not None:
            return leave_one_out_guided(batch, output, budget)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in _PARTS)
        overridden = type(self).forward is not AffineClassifier.forward
        if overridden or not resumable(encoder, attention):
            return reencode(self, batch, output, budget)
        # Words in blocks of texts of similar length; sentences, whose words are read once, are few.
        flat = batch.mask.ndim == 2
        lengths = batch.mask.sum(-1) if flat else batch.index.new_zeros(len(batch))
        lengths, order = lengths.sort(stable=True)
        parts = []
        for block in blocks(lengths.tolist(), budget):
            texts, size = order[block], int(lengths[block][-1]) if flat else batch.mask.shape[1]
            tokens, seen_tokens = (values[texts, :size] for values in (batch.tokens, batch.mask))
            part = TextBatch(batch.index[texts], tokens, seen_tokens)
            items, seen, mask, places, _ = self._items(part)
            logits = leave_out(encoder, attention, self._classify, items, seen, mask, budget)
            if places is not None:
                logits = logits.gather(1, places.expand_as(logits))
            parts.append(pad(logits, (0, 0, 0, output.mask.shape[1] - size), value=torch.nan))
        return torch.cat(parts)[order.argsort()]

    def _classify(self, states: Tensor) -> Tensor:
        """Logits (..., C) of states (..., D)."""
        logits: Tensor = self.decoder(states).to(self.decoder.weight.dtype)
        return logits if logits.shape[-1] > 1 else pad(logits, (1, 0))

    @abstractmethod
    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        """Input of the last encoder for a batch, see `Items`."""


class FlatClassifier(AffineClassifier):
    """Words to one text: the classifier of Jain and Wallace (2019), Serrano and Smith's FLAN.

    Arguments are those of `AffineClassifier`, without those of sentences.
    """

    levels = ("",)
    encoder: Encoder
    attention: Attention

    @override
    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        if batch.tokens.ndim != 2:
            raise InputError(
                "the model reads flat texts, but the corpus gives sentences: set `sentences: "
                "false` in `data`, or `hierarchical: true` in `model`."
            )
        embeddings = self.embed(batch) if embeddings is None else embeddings
        return self.embedding_dropout(embeddings), batch.mask, batch.attendable(), None, None
