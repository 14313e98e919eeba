"""A classifier that reads words to sentences and sentences to a text."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models.attention import Attention
from attnlight.models.classifier import AffineClassifier, Items
from attnlight.models.encoders import Encoder


class HierarchicalClassifier(AffineClassifier):
    """The hierarchical attention network of Yang et al. (2016), Serrano and Smith's HAN (2019).

    An encoder and attention turn the words of each sentence into a vector, a second encoder and
    attention of the same kinds the sentences of a text into its context. The attention that tests
    see is that over sentences; that over words, (B, S, N), is in `AttentionOutput.layers`.

    A sentence counts where it has something to attend to. Others (padding, boundary tokens alone)
    have a vector of zeros and a weight of 0, and the sentences around them are read as if they
    were not there, wherever they stand. A text without a sentence that counts has weights of zero
    and the logits of an empty context.

    Arguments are those of `AffineClassifier`.
    """

    levels = ("word_", "sentence_")
    word_encoder: Encoder
    word_attention: Attention
    sentence_encoder: Encoder
    sentence_attention: Attention

    @override
    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        # The words of each sentence that counts, and only of those, give its vector.
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
        found = [rows[0].new_empty(0, self.word_encoder.output_size, dtype=dtype)]
        weights = [rows[0].new_empty(0, size, dtype=dtype)]
        for chosen, longest in _groups(batch.mask.sum(-1) * counts):
            # Only now are tokens looked up: (B, S, N, E) would be mostly padding.
            if embeddings is None:
                own = self.embedding(tokens[chosen, :longest])
            else:
                own = embeddings.flatten(0, 1)[chosen, :longest]
            own = self.embedding_dropout(own)
            states = self.word_encoder(own, seen[chosen, :longest]).to(own.dtype)
            weight = self.word_attention(states, reached[chosen, :longest])
            rows.append(chosen)
            found.append((weight.unsqueeze(1) @ states).squeeze(1).to(own.dtype))
            weights.append(pad(weight, (0, size - longest)))
        places = torch.cat(rows)
        read, words = (
            values.new_zeros(texts * sentences, values.shape[1]).index_copy(0, places, values)
            for values in (torch.cat(found), torch.cat(weights))
        )
        vectors = self.sentence_dropout(read.view(texts, sentences, -1))
        # Sentences that count come first, as if the others were not there.
        counted, order = counts.byte().sort(dim=1, descending=True, stable=True)
        packed = vectors.gather(1, order.unsqueeze(-1).expand_as(vectors))
        places, there = order.argsort(dim=1).unsqueeze(-1), counted.bool()
        return packed, there, there, places, (words.view(texts, sentences, -1),)


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
