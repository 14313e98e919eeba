"""Classifiers of one text: what they share, and the flat one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import reencode
from attnlight.functional.attribution.leave_one_out import blocks
from attnlight.models.attention import ATTENTIONS
from attnlight.models.deletion import AttentionLayer, leave_out
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS
from attnlight.models.guided import Guide, leave_out_given
from attnlight.models.initialization import initialize
from attnlight.models.options import ClassifierNet, group_of


class AffineClassifier(nn.Module):
    """What classifiers share that put an affine layer over attention's mean state.

    Two classes have one logit z and come out as (0, z). A subclass adds what stands between the
    embedding and the affine layer `decoder`, and that layer, then starts the parameters.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        net: Options.

    Attributes:
        guide: Where the attention that tests see comes from; None: from the model's own. A model
            with a guide must read each item alone: encoder `average` or `none`.

    Raises:
        InputError: Fewer than two classes.
    """

    decoder: nn.Linear

    def __init__(self, vocab_size: int, num_classes: int, net: ClassifierNet) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes is {num_classes}; a classifier needs at least 2")
        self.embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
        self.embedding_dropout = nn.Dropout(net.embedding_dropout)
        self.dropout = nn.Dropout(net.dropout)
        self.dropout_on = net.dropout_on
        self.guide: Guide | None = None

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

    def _classify(self, states: Tensor) -> Tensor:
        """Logits (..., C) of states (..., D)."""
        logits: Tensor = self.decoder(states).to(self.decoder.weight.dtype)
        return logits if logits.shape[-1] > 1 else pad(logits, (1, 0))


class FlatClassifier(AffineClassifier):
    """Words to one text: the classifier of Jain and Wallace (2019), Serrano and Smith's FLAN.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        options: Those of `ClassifierNet` but for the two of sentences.

    Raises:
        InputError: Fewer than two classes, a dropout outside [0, 1), one of sentences, or sizes that
            do not fit.
    """

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        net = group_of(ClassifierNet, options)
        if net.sentence_dropout:
            raise InputError(
                f"sentence_dropout is {net.sentence_dropout}, but a model that is not hierarchical "
                "has no sentences."
            )
        super().__init__(vocab_size, num_classes, net)
        self.encoder = ENCODERS[net.encoder](net.embedding_size, net.hidden_size)
        size = self.encoder.output_size
        self.attention = ATTENTIONS[net.attention](size, attention_size=net.attention_size)
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        initialize(self, net.initialization)

    @override
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
            InputError: The batch has sentences, or a guide does not know its texts.
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
            guide = self.guide
            weights = self.attention(states, mask).unsqueeze(1) if guide is None else guide(batch)
        return self._output(batch, states, weights, mask)

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, N, C) after each token is deleted, as `functional.reencode` gives them."""
        if self.guide is not None:
            return leave_out_given(
                batch, output, budget, self._classify(output.states).unsqueeze(1)
            )
        layer = AttentionLayer(self.encoder, self.attention, self._classify)
        if not layer.known or type(self).forward is not FlatClassifier.forward:
            return reencode(self, batch, output, budget)
        parts = []
        lengths, order = batch.mask.sum(-1).sort(stable=True)
        for block in blocks(lengths.tolist(), budget):
            texts, size = order[block], int(lengths[block][-1])
            part = TextBatch(
                batch.index[texts], batch.tokens[texts, :size], batch.mask[texts, :size]
            )
            mask = output.mask[texts, :size]
            logits = leave_out(layer, self.embed(part), part.mask, mask, budget)
            parts.append(pad(logits, (0, 0, 0, output.mask.shape[1] - size), value=torch.nan))
        return torch.cat(parts)[order.argsort()]
