"""Leave-one-out without encoding anew what a deletion leaves as it was.

Deleting a token changes only some states: those of the tokens after it in the forward recurrence
and before it in the backward one, those within reach in a convolution, none without context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlight.functional import masked_softmax, read
from attnlight.functional.attribution.leave_one_out import deletions
from attnlight.models.attention import Attention
from attnlight.models.encoders import Encoder
from attnlight.models.recurrence import Recurrence

# A deletion here keeps C + 1 numbers for each token, a text encoded anew some thousand.
_SHARE = 8
# Which of some deletions changes a state (M,), the token of the text as it was (M,), its state now
# (M, D).
Changed = Iterator[tuple[Tensor, Tensor, Tensor]]


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
        """Whether this module knows what a deletion changes; if not, only encoding anew tells.

        It does of encoders with a `reach`, and of two recurrences of one layer, `forwards` and
        `backwards`, with attention that scores each state alone.
        """
        networks = [getattr(self.encoder, name, None) for name in ("forwards", "backwards")]
        resumable = all(
            isinstance(network, nn.LSTM | nn.GRU)
            and network.num_layers == 1
            and network.bias
            and not network.bidirectional
            and not network.proj_size
            for network in networks
        )
        scored = type(self.attention).forward is Attention.forward
        return scored and (self.encoder.reach is not None or resumable)


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
    encoder, lengths = layer.encoder, text.sum(-1)
    changed: Callable[[Tensor, Tensor], Changed]
    if encoder.reach is None:
        forwards = Recurrence(encoder.get_submodule("forwards"), embeddings, text, 1)
        backwards = Recurrence(encoder.get_submodule("backwards"), embeddings, text, -1)
        states = torch.cat([forwards.hidden, backwards.hidden], dim=-1)
        changed = partial(_resumed, forwards, backwards)
    else:
        states = encoder(embeddings, text)
        changed = partial(_within_reach, encoder, encoder.reach, embeddings, lengths, budget)
    scores, items = layer.attention.score(states, None), layer.classify(states)
    logits = torch.full_like(items, torch.nan)
    for texts, places in deletions(mask, lengths, _SHARE * budget):
        size = int(lengths[texts].max())
        left = mask[texts, :size].scatter(1, places[:, None], False)
        new_scores, new_items = scores[texts, :size], items[texts, :size]
        for deletion, place, found in changed(texts, places):
            new_scores[deletion, place] = layer.attention.score(found[None], None)[0]
            new_items[deletion, place] = layer.classify(found)
        logits[texts, places] = read(masked_softmax(new_scores, left), new_items)
    return logits


def _within_reach(
    encoder: Encoder,
    reach: int,
    embeddings: Tensor,
    lengths: Tensor,
    budget: int,
    texts: Tensor,
    places: Tensor,
) -> Changed:
    """The states that differ after deleting a token from each of r texts: those near the gap.

    They are encoded from twice as many tokens around it, of blocks of texts within the budget. Such
    a window does not begin before the text: there, padding is what the encoder's own is.

    Args:
        encoder: A convolution, or without context.
        reach: How many tokens to either side a state depends on.
        embeddings: Those of the texts, (B, N, E).
        lengths: Their lengths, (B,).
        budget: Tokens encoded at once, at least one text.
        texts: Which texts, (r,).
        places: The token to delete from each, (r,).
    """
    if not reach:
        return
    size = max(1, budget // (4 * reach))
    for first in range(0, len(texts), size):
        text, gap = texts[first : first + size, None], places[first : first + size, None]
        start = (gap - 2 * reach).clamp(min=0)
        shortened = start + torch.arange(4 * reach, device=gap.device)
        place = shortened + (shortened >= gap)
        inside = place < lengths[text]
        window = embeddings[text, place.clamp(max=embeddings.shape[1] - 1)]
        near = (shortened >= gap - reach) & (shortened < gap + reach) & inside
        deletion, column = near.nonzero().unbind(-1)
        states = encoder(window, inside)[deletion, column]
        yield deletion + first, place[deletion, column], states


def _resumed(forwards: Recurrence, backwards: Recurrence, texts: Tensor, places: Tensor) -> Changed:
    """The same where two recurrences are resumed from their states before the gap."""
    for deletion, place, hidden in forwards.resume(texts, places):
        other = backwards.hidden[texts[deletion], place]
        yield deletion, place, torch.cat([hidden, other], dim=-1)
    for deletion, place, hidden in backwards.resume(texts, places):
        other = forwards.hidden[texts[deletion], place]
        yield deletion, place, torch.cat([other, hidden], dim=-1)
