"""A classifier that reads words to sentences and sentences to a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import reencode
from attnlight.models.attention import ATTENTIONS
from attnlight.models.classifier import AffineClassifier
from attnlight.models.deletion import AttentionLayer, leave_out
from attnlight.models.encoders import ENCODERS
from attnlight.models.guided import leave_out_given
from attnlight.models.initialization import initialize
from attnlight.models.options import ClassifierNet, group_of


class HierarchicalClassifier(AffineClassifier):
    """The hierarchical attention network of Yang et al. (2016), Serrano and Smith's HAN (2019).

    An encoder and attention turn the words of each sentence into a vector, a second encoder and
    attention of the same kinds the sentences of a text into its context. The attention that tests
    see is that over sentences; that over words is in `AttentionOutput.layers`.

    A sentence counts where it has something to attend to. Others (padding, boundary tokens alone)
    have a vector of zeros and a weight of 0, and the sentences around them are read as if they
    were not there, wherever they stand. A text without a sentence that counts has weights of zero
    and the logits of an empty context.

    Args:
        vocab_size: Number of token ids V.
        num_classes: Number of classes C.
        options: Those of `ClassifierNet`, of encoder and attention for both.

    Raises:
        InputError: Fewer than two classes, a dropout outside [0, 1), or sizes that do not fit.
    """

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        net = group_of(ClassifierNet, options)
        super().__init__(vocab_size, num_classes, net)
        self.word_encoder = ENCODERS[net.encoder](net.embedding_size, net.hidden_size)
        size = self.word_encoder.output_size
        self.word_attention = ATTENTIONS[net.attention](size, attention_size=net.attention_size)
        self.sentence_dropout = nn.Dropout(net.sentence_dropout)
        self.sentence_encoder = ENCODERS[net.encoder](size, net.hidden_size)
        size = self.sentence_encoder.output_size
        self.sentence_attention = ATTENTIONS[net.attention](size, attention_size=net.attention_size)
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        initialize(self, net.initialization)

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Args:
            batch: B texts of S sentences of N tokens.
            weights: Attention over sentences to use in place of the model's own, (B, 1, S).
            embeddings: Token embeddings to use in place of `embed(batch)`, (B, S, N, E).

        Returns:
            One row per text, R = B, one head, and a sentence as the item. `states` are (B, S, D);
            `layers` holds the attention over words (B, S, N), of which each row sums to 1 or, for
            a sentence that does not count, is zero. `item_logits` is None in training mode; at
            padding it is finite and means nothing.

        Raises:
            InputError: The batch has no sentences, or a guide does not know its texts.
        """
        vectors, words, mask = self.sentence_vectors(batch, embeddings)
        packed, counted, back = _counted_first(self.sentence_dropout(vectors), mask)
        states: Tensor = self.sentence_encoder(packed, counted).to(vectors.dtype)
        states = states.gather(1, back.expand_as(states))
        if weights is None:
            guide, attention = self.guide, self.sentence_attention
            weights = attention(states, mask).unsqueeze(1) if guide is None else guide(batch)
        return self._output(batch, states, weights, mask, layers=(words,))

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, S, C) after each sentence is deleted, as `functional.reencode` gives them.

        The words of a sentence are read once.
        """
        if self.guide is not None:
            return leave_out_given(
                batch, output, budget, self._classify(output.states).unsqueeze(1)
            )
        layer = AttentionLayer(self.sentence_encoder, self.sentence_attention, self._classify)
        if not layer.known or type(self).forward is not HierarchicalClassifier.forward:
            return reencode(self, batch, output, budget)
        vectors, _, mask = self.sentence_vectors(batch)
        packed, counted, back = _counted_first(vectors, mask)
        logits = leave_out(layer, packed, counted, counted, budget)
        return logits.gather(1, back.expand_as(logits))

    def sentence_vectors(
        self, batch: TextBatch, embeddings: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read the words of each sentence that counts, and only of those.

        Args:
            batch: B texts of S sentences of N tokens.
            embeddings: Token embeddings to use in place of `embed(batch)`, (B, S, N, E).

        Returns:
            Sentence vectors (B, S, D), attention over words (B, S, N), and which sentences count
            (B, S) bool; zero for the others.

        Raises:
            InputError: The batch has no sentences.
        """
        if batch.tokens.ndim != 3:
            raise InputError(
                "the model reads sentences, but the corpus gives flat texts: set `sentences: true` "
                "in `data` (TextDataModule has it), or `hierarchical: false` in `model`."
            )
        texts, sentences, size = batch.tokens.shape
        attendable = batch.attendable()
        counts = attendable.any(-1)
        tokens, seen, reached = (
            part.flatten(0, 1) for part in (batch.tokens, batch.mask, attendable)
        )
        dtype = self.embedding.weight.dtype if embeddings is None else embeddings.dtype
        rows = [torch.empty(0, dtype=torch.long, device=counts.device)]
        vectors = [rows[0].new_empty(0, self.word_encoder.output_size, dtype=dtype)]
        weights = [rows[0].new_empty(0, size, dtype=dtype)]
        for chosen, longest in _groups(batch.mask.sum(-1) * counts):
            # Only now are tokens looked up: (B, S, N, E) would be mostly padding.
            if embeddings is None:
                found = self.embedding(tokens[chosen, :longest])
            else:
                found = embeddings.flatten(0, 1)[chosen, :longest]
            found = self.embedding_dropout(found)
            states = self.word_encoder(found, seen[chosen, :longest]).to(found.dtype)
            weight = self.word_attention(states, reached[chosen, :longest])
            rows.append(chosen)
            vectors.append((weight.unsqueeze(1) @ states).squeeze(1).to(found.dtype))
            weights.append(pad(weight, (0, size - longest)))
        places = torch.cat(rows)
        read, words = (
            values.new_zeros(texts * sentences, values.shape[1]).index_copy(0, places, values)
            for values in (torch.cat(vectors), torch.cat(weights))
        )
        return read.view(texts, sentences, -1), words.view(texts, sentences, -1), counts


def _groups(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Places (G,) of lengths (B, S) above 0, flattened, in groups none twice as long as another.

    On a CPU a HAN reads and trains on Yelp's reviews four times as fast so as with all sentences of
    a batch padded to the longest. Yields each group with its largest length.
    """
    ordered, places = lengths.flatten().sort(descending=True, stable=True)
    listed = ordered.tolist()
    start = 0
    for stop in range(1, len(listed) + 1):
        if listed[start] and (stop == len(listed) or 2 * listed[stop] < listed[start]):
            yield places[start:stop], listed[start]
            start = stop


def _counted_first(vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sentence vectors with those that count first, as if the others were not there.

    Returns:
        Vectors (B, S, D), mask (B, S), and the places (B, S, 1) that bring values back in order.
    """
    counted, order = mask.byte().sort(dim=1, descending=True, stable=True)
    packed = vectors.gather(1, order.unsqueeze(-1).expand_as(vectors))
    return packed, counted.bool(), order.argsort(dim=1).unsqueeze(-1)
