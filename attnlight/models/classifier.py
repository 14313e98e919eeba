"""Classifiers of one text: what they share, and the flat one."""

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
from attnlight.models.guided import Guide, leave_out_given
from attnlight.models.options import ClassifierNet, group_of

# What the last encoder reads, (B, N, E); what of it is there, and what attention may reach, (B, N)
# bool; the places (B, N, 1) that bring states in the order of the batch, None where they are; and
# the attention of the levels below.
Items = tuple[Tensor, Tensor, Tensor, Tensor | None, tuple[Tensor, ...] | None]
_PARTS = ("encoder", "attention")


class AffineClassifier(nn.Module, ABC):
    """What classifiers share that put an affine layer over attention's mean state.

    Two classes have one logit z and come out as (0, z). Each level is an encoder and attention; a
    subclass names them and says what the last encoder reads.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        options: Those of `ClassifierNet`, of encoder and attention for all levels.

    Attributes:
        levels: What stands before `encoder` and `attention` in the names of each level's.
        guide: Where the attention that tests see comes from; None: from the model's own. A model
            with a guide must read each item alone: encoder `average` or `none`.

    Raises:
        InputError: Fewer than two classes, a dropout outside [0, 1) or of sentences where there are
            none, or sizes that do not fit.
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
        """Options of a classifier that reads each word alone: the MLP of Wiegreffe & Pinter."""
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
            weights: Attention over the items to use in place of the model's own, (B, 1, N).
            embeddings: Token embeddings to use in place of `embed(batch)`, of their shape.

        Returns:
            One row per text, R = B, and one head; `states` are (B, N, D). `item_logits` is None in
            training mode; at padding it is finite and means nothing.

        Raises:
            InputError: The batch has sentences where the model reads none, or has none, or a guide
                does not know its texts.
        """
        items, seen, mask, places, layers = self._items(batch, embeddings)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in _PARTS)
        # Under autocast, states and logits come in half precision; what tests read is not.
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
        """Logits (B, N, C) after each item is deleted, as `functional.reencode` gives them."""
        if self.guide is not None:
            return leave_out_given(batch, output, budget)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in _PARTS)
        own = type(self).forward is AffineClassifier.forward
        if not (own and resumable(encoder, attention)):
            return reencode(self, batch, output, budget)
        # Words in blocks of texts of like length; sentences, whose words are read once, are few.
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
        """What the last encoder reads of a batch, see `Items`."""


class FlatClassifier(AffineClassifier):
    """Words to one text: the classifier of Jain and Wallace (2019), Serrano and Smith's FLAN.

    Arguments are those of `AffineClassifier`, without the options of sentences.
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
