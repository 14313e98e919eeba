"""Leave-one-out without encoding anew what a deletion leaves as it was.

Deleting a token changes only some states: those of the tokens after it in the forward recurrence
and before it in the backward one, those within reach in a convolution, none without context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.functional import masked_softmax, read
from attnlight.functional.attribution.leave_one_out import blocks, deletions
from attnlight.models.attention import Attention
from attnlight.models.encoders import Encoder
from attnlight.models.recurrence import Recurrence, resumable

# A deletion here keeps C + 1 numbers for each token, a text encoded anew some thousand.
_SHARE = 8


class AttentionLayer(NamedTuple):
    """What stands between embeddings, or sentence vectors, and logits.

    Attributes:
        encoder: Embeddings to states.
        attention: States to weights.
        classify: States (..., D) to logits (..., C), affine.
    """

    encoder: Encoder
    attention: Attention
    classify: Callable[[Tensor], Tensor]

    @property
    def known(self) -> bool:
        """Whether this module knows what a deletion changes; if not, only encoding anew tells."""
        scored = type(self.attention).forward is Attention.forward
        return scored and (self.encoder.reach is not None or resumable(self.encoder))


def leave_out_tokens(
    layer: AttentionLayer,
    embed: Callable[[TextBatch], Tensor],
    batch: TextBatch,
    mask: Tensor,
    budget: int,
) -> Tensor:
    """Logits after each token is deleted and attention is taken anew.

    Args:
        layer: A layer that is `known`.
        embed: Token embeddings (B, N, E) of a batch.
        batch: B texts of N tokens.
        mask: What attention may reach, (B, N) bool.
        budget: Tokens encoded at once, at least one text.

    Returns:
        (B, N, C); NaN off the mask and where nothing is left.
    """
    parts = []
    lengths, order = batch.mask.sum(-1).sort(stable=True)
    for block in blocks(lengths.tolist(), budget):
        texts, size = order[block], int(lengths[block][-1])
        part = TextBatch(batch.index[texts], batch.tokens[texts, :size], batch.mask[texts, :size])
        logits = leave_out(layer, embed(part), part.mask, mask[texts, :size], budget)
        parts.append(pad(logits, (0, 0, 0, mask.shape[1] - size), value=torch.nan))
    return torch.cat(parts)[order.argsort()]


def leave_out_sentences(
    layer: AttentionLayer, vectors: Tensor, mask: Tensor, budget: int
) -> Tensor:
    """Logits after each sentence is deleted and attention over the others is taken anew.

    Args:
        layer: A layer that is `known`.
        vectors: Sentence vectors (B, S, D).
        mask: Which sentences count, (B, S) bool; the others are read as if they were not there.
        budget: Sentences encoded at once, at least one text.

    Returns:
        (B, S, C); NaN off the mask and where nothing is left.
    """
    counted, order = mask.byte().sort(dim=1, descending=True, stable=True)
    packed = vectors.gather(1, order.unsqueeze(-1).expand_as(vectors))
    logits = leave_out(layer, packed, counted.bool(), counted.bool(), budget)
    return logits.gather(1, order.argsort(dim=1).unsqueeze(-1).expand_as(logits))


def leave_out(
    layer: AttentionLayer, embeddings: Tensor, text: Tensor, mask: Tensor, budget: int
) -> Tensor:
    """Logits after each item is deleted and attention is taken anew.

    Args:
        layer: A layer that is `known`.
        embeddings: (B, N, E).
        text: What the encoder sees, (B, N) bool.
        mask: What attention may reach, (B, N) bool.
        budget: Items encoded at once, at least one text.

    Returns:
        (B, N, C); NaN off the mask and where nothing is left.
    """
    kind = RecurrentDeletions if layer.encoder.reach is None else LocalDeletions
    found = kind(layer.encoder, embeddings, text)
    lengths = text.sum(-1)
    scores = layer.attention.score(found.states, None)
    items = layer.classify(found.states)
    logits = torch.full_like(items, torch.nan)
    for texts, places in deletions(mask, lengths, _SHARE * budget):
        size = int(lengths[texts].max())
        left = mask[texts, :size].scatter(1, places[:, None], False)
        new_scores, new_items = scores[texts, :size], items[texts, :size]
        for deletion, place, states in found.changed(texts, places, budget):
            new_scores[deletion, place] = layer.attention.score(states[None], None)[0]
            new_items[deletion, place] = layer.classify(states)
        logits[texts, places] = read(masked_softmax(new_scores, left), new_items)
    return logits


class ChangedStates(NamedTuple):
    """M states that deletions change.

    Attributes:
        deletion: Which of the deletions, (M,).
        place: Which token of the text as it was, (M,).
        states: Its state now, (M, D).
    """

    deletion: Tensor
    place: Tensor
    states: Tensor


class Deletions(ABC):
    """What deletions change in the states of B texts.

    Args:
        encoder: The encoder.
        embeddings: (B, N, E).
        text: What is text, (B, N) bool.

    Attributes:
        states: States of the texts as they are, (B, N, D).
    """

    states: Tensor

    @abstractmethod
    def __init__(self, encoder: Encoder, embeddings: Tensor, text: Tensor) -> None: ...

    @abstractmethod
    def changed(self, texts: Tensor, places: Tensor, budget: int) -> Iterator[ChangedStates]:
        """The states that differ after deleting a token from each of r texts.

        Args:
            texts: Which texts, (r,).
            places: The token to delete from each, (r,).
            budget: Tokens encoded at once, at least one text.
        """


class LocalDeletions(Deletions):
    """Deletions where a state depends on what is within reach of it: convolutions, no context."""

    def __init__(self, encoder: Encoder, embeddings: Tensor, text: Tensor) -> None:
        assert encoder.reach is not None
        self.encoder, self.reach = encoder, encoder.reach
        self.embeddings, self.lengths = embeddings, text.sum(-1)
        self.states = encoder(embeddings, text)

    @override
    def changed(self, texts: Tensor, places: Tensor, budget: int) -> Iterator[ChangedStates]:
        if not self.reach:
            return
        size = max(1, budget // (4 * self.reach))
        for first in range(0, len(texts), size):
            block = slice(first, first + size)
            found = self._around(texts[block], places[block, None])
            yield found._replace(deletion=found.deletion + first)

    def _around(self, texts: Tensor, gap: Tensor) -> ChangedStates:
        """The states within reach of gaps (r, 1), from twice as many tokens around them.

        A window does not begin before the text: there, padding is what the encoder's own is.
        """
        start = (gap - 2 * self.reach).clamp(min=0)
        shortened = start + torch.arange(4 * self.reach, device=gap.device)
        place = shortened + (shortened >= gap)
        inside = place < self.lengths[texts, None]
        window = self.embeddings[texts[:, None], place.clamp(max=self.embeddings.shape[1] - 1)]
        near = (shortened >= gap - self.reach) & (shortened < gap + self.reach) & inside
        deletion, column = near.nonzero().unbind(-1)
        states = self.encoder(window, inside)[deletion, column]
        return ChangedStates(deletion, place[deletion, column], states)


class RecurrentDeletions(Deletions):
    """Deletions in recurrences in both directions, each resumed from its state before the gap."""

    def __init__(self, encoder: Encoder, embeddings: Tensor, text: Tensor) -> None:
        networks = encoder.get_submodule("forwards"), encoder.get_submodule("backwards")
        self.forwards, self.backwards = (
            Recurrence(network, embeddings, text, step)
            for network, step in zip(networks, (1, -1), strict=True)
        )
        self.states = torch.cat([self.forwards.hidden, self.backwards.hidden], dim=-1)

    @override
    def changed(self, texts: Tensor, places: Tensor, budget: int) -> Iterator[ChangedStates]:
        for deletion, place, hidden in self.forwards.resume(texts, places):
            other = self.backwards.hidden[texts[deletion], place]
            yield ChangedStates(deletion, place, torch.cat([hidden, other], dim=-1))
        for deletion, place, hidden in self.backwards.resume(texts, places):
            other = self.forwards.hidden[texts[deletion], place]
            yield ChangedStates(deletion, place, torch.cat([other, hidden], dim=-1))
