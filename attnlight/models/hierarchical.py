"""A classifier that reads words to sentences and sentences to a text."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import reencode
from attnlight.models.attention import ATTENTIONS, AttentionName
from attnlight.models.classifier import AffineClassifier, DropoutOn, make_dropout
from attnlight.models.deletion import AttentionLayer, leave_out_sentences
from attnlight.models.encoders import ENCODERS, EncoderName
from attnlight.models.initialization import Initialization


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
        encoder: What turns embeddings and sentence vectors into the states that attention attends
            to.
        attention: How a state is scored.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of both encoders' states, per direction for the recurrent ones.
        attention_size: Size of additive attention's hidden layer; None: half a state.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        freeze_embeddings: Keep the embeddings as they start.
        embedding_dropout: Dropout on token embeddings, before the word encoder.
        sentence_dropout: Dropout on sentence vectors, before the sentence encoder.
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
        encoder: EncoderName = "bigru",
        attention: AttentionName = "additive",
        embedding_size: int = 200,
        hidden_size: int = 50,
        attention_size: int | None = None,
        embedding_scale: float = 0.1,
        freeze_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        sentence_dropout: float = 0.0,
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
        self.word_encoder = ENCODERS[encoder](embedding_size, hidden_size)
        size = self.word_encoder.output_size
        self.word_attention = ATTENTIONS[attention](size, attention_size=attention_size)
        self.sentence_dropout = make_dropout("sentence_dropout", sentence_dropout)
        self.sentence_encoder = ENCODERS[encoder](size, hidden_size)
        size = self.sentence_encoder.output_size
        self.sentence_attention = ATTENTIONS[attention](size, attention_size=attention_size)
        self._end(size, num_classes, initialization)

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
            InputError: The batch has no sentences.
        """
        vectors, words, mask = self.sentence_vectors(batch, embeddings)
        states = self._sentence_states(vectors, mask)
        if weights is None:
            weights = self.sentence_attention(states, mask).unsqueeze(1)
        return self._output(batch, states, weights, mask, layers=(words,))

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, S, C) after each sentence is deleted, as `functional.reencode` gives them.

        The words of a sentence are read once.
        """
        layer = AttentionLayer(self.sentence_encoder, self.sentence_attention, self._classify)
        if not layer.known or type(self).forward is not HierarchicalClassifier.forward:
            return reencode(self, batch, output, budget)
        vectors, _, mask = self.sentence_vectors(batch)
        return leave_out_sentences(layer, vectors, mask, budget)

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
        dtype = self.embedding.weight.dtype if embeddings is None else embeddings.dtype
        rows = [torch.empty(0, dtype=torch.long, device=counts.device)]
        vectors = [rows[0].new_empty(0, self.word_encoder.output_size, dtype=dtype)]
        weights = [rows[0].new_empty(0, size, dtype=dtype)]
        for chosen, longest in _groups(batch.mask.sum(-1) * counts):
            vector, weight = self._read_words(batch, attendable, embeddings, chosen, longest)
            rows.append(chosen)
            vectors.append(vector)
            weights.append(pad(weight, (0, size - longest)))
        places = torch.cat(rows)
        return (
            _scatter(torch.cat(vectors), places, texts, sentences),
            _scatter(torch.cat(weights), places, texts, sentences),
            counts,
        )

    def classify_sentences(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, C) of sentence vectors (B, S, D), of which those of the mask (B, S) count.

        The others are passed over as if they were not there: `mask` without a sentence reads the
        text that lacks it.
        """
        states = self._sentence_states(vectors, mask)
        return self._read(self.sentence_attention(states, mask).unsqueeze(1), states)

    def _read_words(
        self,
        batch: TextBatch,
        attendable: Tensor,
        embeddings: Tensor | None,
        chosen: Tensor,
        longest: int,
    ) -> tuple[Tensor, Tensor]:
        """Vectors (G, D) and word weights (G, L) of G sentences, of a batch's B S, cut to L."""

        def part(values: Tensor) -> Tensor:
            return values.flatten(0, 1)[chosen, :longest]

        # Only now are tokens looked up: (B, S, N, E) would be mostly padding.
        found = self.embedding(part(batch.tokens)) if embeddings is None else part(embeddings)
        found = self.embedding_dropout(found)
        states: Tensor = self.word_encoder(found, part(batch.mask)).to(found.dtype)
        weights: Tensor = self.word_attention(states, part(attendable))
        return (weights.unsqueeze(1) @ states).squeeze(1).to(found.dtype), weights

    def _sentence_states(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """States (B, S, D) of sentence vectors, read without those off the mask (B, S)."""
        order = mask.byte().sort(dim=1, descending=True, stable=True).indices
        packed = _reorder(self.sentence_dropout(vectors), order)
        states: Tensor = self.sentence_encoder(packed, mask.gather(1, order)).to(vectors.dtype)
        return _reorder(states, order.argsort(dim=1))


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


def _scatter(values: Tensor, places: Tensor, texts: int, sentences: int) -> Tensor:
    """Values (G, D) at their places among B S zeros, (B, S, D)."""
    zeros = values.new_zeros(texts * sentences, values.shape[1])
    return zeros.index_copy(0, places, values).view(texts, sentences, -1)


def _reorder(values: Tensor, order: Tensor) -> Tensor:
    """Values (B, S, D) in the order (B, S)."""
    return values.gather(1, order.unsqueeze(-1).expand(-1, -1, values.shape[2]))
