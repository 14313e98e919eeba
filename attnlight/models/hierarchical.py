"""A classifier that composes words to sentences and sentences to a text."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models.attention import Attention
from attnlight.models.classifier import AffineClassifier
from attnlight.models.context import Items
from attnlight.models.encoders import Encoder

# In `AttentionOutput.memory` of `word_level`: the words that attention may reach, (B, S, N) bool.
WORDS = "words"


class HierarchicalClassifier(AffineClassifier):
    """The hierarchical attention network of Yang et al. (2016), Serrano and Smith's HAN (2019).

    An encoder and attention turn the words of each sentence into a vector; a second encoder and
    attention of the same kinds turn the sentences of a text into its context. Tests see the
    attention over sentences; that over words, (B, S, N), is in `AttentionOutput.layers`.

    A sentence is valid if it has a token to attend to. Others (padding, boundary tokens alone) have
    a vector of zeros and a weight of 0, and the second encoder skips them wherever they are. A text
    without a valid sentence has weights of zero and the logits of an empty context.
    """

    levels = ("word_", "sentence_")
    word_encoder: Encoder
    word_attention: Attention
    sentence_encoder: Encoder
    sentence_attention: Attention

    @override
    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        # Only valid sentences are encoded.
        if batch.tokens.ndim != 3:
            raise InputError(
                "the model reads sentences, but the corpus gives flat texts: set `sentences: nested` and "
                "`boundary_tokens: false` in `data`, or `hierarchical: false` in `model`."
            )
        texts, sentences, size = batch.tokens.shape
        valid = batch.attendable().any(-1)
        dtype = self.embedding.weight.dtype if embeddings is None else embeddings.dtype
        rows = [torch.empty(0, dtype=torch.long, device=valid.device)]
        contexts = [rows[0].new_empty(0, self.word_attention.size, dtype=dtype)]
        weights = [rows[0].new_empty(0, size, dtype=dtype)]
        for group, states, reached in self._word_states(batch, embeddings):
            weight, _ = self.word_attention(states, reached)
            rows.append(group)
            contexts.append((weight.unsqueeze(1) @ states).squeeze(1).to(states.dtype))
            weights.append(pad(weight, (0, size - weight.shape[1])))
        places = torch.cat(rows)
        vectors, word_weights = (
            values.new_zeros(texts * sentences, values.shape[1]).index_copy(0, places, values)
            for values in (torch.cat(contexts), torch.cat(weights))
        )
        vectors = self.sentence_dropout(vectors.view(texts, sentences, -1))
        packed, mask, places = _packed(vectors, valid)
        return packed, mask, mask, places, (word_weights.view(texts, sentences, -1),)

    def word_level(self, batch: TextBatch, output: AttentionOutput) -> AttentionOutput:
        """The output with the S N words inside sentences as items, each with its weight there.

        The weights (B, 1, S N) of a text sum to the number of its valid sentences, and the readout
        is opaque.

        Raises:
            InputError: A guide supplies the attention over sentences, which is for complete texts.
        """
        if self.guide is not None:
            raise InputError(
                "level words takes a model with attention of its own, but a guide supplies that over "
                "sentences: leave level out."
            )
        assert output.layers is not None
        words = batch.attendable()
        states = output.states.new_zeros(*words.flatten(0, 1).shape, self.word_attention.size)
        for group, found, _ in self._word_states(batch):
            states[group, : found.shape[1]] = found
        changed = replace(
            output,
            weights=output.layers[0].flatten(1).unsqueeze(1),
            item_logits=None,
            mask=words.flatten(1),
            states=states.view(*words.flatten(1).shape, states.shape[-1]),
            layers=None,
            memory=output.memory | {WORDS: words},
            scores=None,
        )
        # As precise as what the readout gives for other weights, under autocast too.
        logits = self.readout(changed, changed.weights.unsqueeze(2)).squeeze(1)
        return replace(changed, logits=logits)

    @override
    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (B, K, C) of K candidate attentions over sentences (B, 1, K, S), or over their words.

        Weights of words, (B, 1, K, S N) for an output of `word_level`, are divided by their sum in
        each sentence, which counts as a constant: gradients are those of free weights. A sentence
        without any is not valid.
        """
        words = output.memory.get(WORDS)
        if words is None:
            return super().readout(output, weights)
        texts, count = weights.shape[0], weights.shape[2]
        by_sentence = weights.reshape(texts, count, *words.shape[1:])  # (B, K, S, N)
        mass = by_sentence.sum(-1, keepdim=True).detach()
        valid = mass > 0
        by_sentence = by_sentence / torch.where(valid, mass, 1.0)
        states = output.states.view(*words.shape, output.states.shape[-1])
        vectors = (by_sentence.transpose(1, 2) @ states).transpose(1, 2)  # (B, K, S, D)
        packed, mask, _ = _packed(vectors.flatten(0, 1), valid.flatten(0, 1).squeeze(-1))
        states = self._attended(self.sentence_encoder(packed, mask), packed)
        weights, _ = self.sentence_attention(states, mask)
        values = self._project((weights.unsqueeze(1) @ states).squeeze(1))
        return self._finish(values.view(texts, count, values.shape[-1]), output.memory)

    def _word_states(
        self, batch: TextBatch, embeddings: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Indices (G,) of valid sentences in the flattened (B, S), in groups of similar length.

        With each the states of its words, (G, n, D), and those that attention may reach, (G, n).
        """
        items = batch.attendable()
        tokens, seen, reached = (part.flatten(0, 1) for part in (batch.tokens, batch.mask, items))
        lengths = (batch.mask.sum(-1) * items.any(-1)).flatten()
        ordered, places = lengths.sort(descending=True, stable=True)
        descending, start = ordered.tolist(), 0
        for stop, following in enumerate([*descending[1:], 0], start=1):
            # No length of a group is more than twice another: on a CPU a HAN predicts and trains four
            # times as fast on Yelp's reviews as with all sentences of a batch padded to the longest.
            if 2 * following >= (longest := descending[start]):
                continue
            group, start = places[start:stop], stop
            # Embed each group alone: (B, S, N, E) would be mostly padding.
            if embeddings is None:
                words = self.embedding(tokens[group, :longest])
            else:
                words = embeddings.flatten(0, 1)[group, :longest]
            words = self.embedding_dropout(words)
            states = self._attended(self.word_encoder(words, seen[group, :longest]), words)
            yield group, states, reached[group, :longest]


def _packed(vectors: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (B, S, D) with those of valid sentences (B, S) first in each text.

    Also which then are valid, (B, S), and the indices (B, S, 1) that restore the order.
    """
    first, order = valid.byte().sort(dim=1, descending=True, stable=True)
    packed = vectors.gather(1, order.unsqueeze(-1).expand_as(vectors))
    return packed, first.bool(), order.argsort(dim=1).unsqueeze(-1)
