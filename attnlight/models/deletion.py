"""Leave-one-out that recomputes only the states that a deletion changes.

Deleting a token changes the states of the tokens after it in the forward recurrence, before it in
the backward one, and within reach in a convolution; an encoder without context has none to change.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attnlight.batch import HasReach
from attnlight.functional import read
from attnlight.models.attention import Attention, RandomAttention
from attnlight.models.encoders import Encoder, OrthogonalLSTM
from attnlight.models.recurrence import Recurrence
from attnlight.probing.leave_one_out import deletions

# Deletions per item of the budget: one stores P + 1 numbers per token, a re-encoded text thousands.
_DELETIONS = 8
_RECURRENCES = {"forwards": 1, "backwards": -1}  # with the step from each token to the next


def resumable(encoder: nn.Module, attention: Attention) -> bool:
    """Whether `leave_out` supports a network; all others must encode each shortened text.

    It supports encoders with a `reach`, and recurrences of one layer, `forwards` and, if there is
    one, `backwards`, with attention that scores each state alone.
    """
    parts = dict(encoder.named_children())
    networks = [parts[name] for name in _RECURRENCES if name in parts]
    recurrent = bool(networks) and parts.keys() <= _RECURRENCES.keys()
    recurrent &= all(
        isinstance(network, nn.LSTM | nn.GRU)
        and network.num_layers == 1
        and network.bias
        and not network.bidirectional
        and not network.proj_size
        for network in networks
    )
    scored = type(attention).forward is Attention.forward
    scored &= not isinstance(attention, RandomAttention)  # its scores are of tokens
    return scored and (recurrent or (isinstance(encoder, HasReach) and encoder.reach is not None))


def leave_out(
    encoder: Encoder,
    attention: Attention,
    decoder: nn.Linear,
    embeddings: Tensor,
    text: Tensor,
    mask: Tensor,
    budget: int,
    query: Tensor | None = None,
    with_embeddings: bool = False,
    only: Tensor | None = None,
) -> Tensor:
    """The decoder's values of the context after each item is deleted and attention is recomputed.

    A deletion changes the states of one recurrence at each place: what the others and the embeddings
    add to the scores and the values is computed once.

    Args:
        encoder: Embeddings, or sentence vectors, to states.
        attention: States to weights; `resumable` with the encoder.
        decoder: States (..., D) to values (..., P): logits, or what a further layer reads.
        embeddings: (B, N, E).
        text: Items that the encoder sees, (B, N) bool.
        mask: Items that attention may reach, (B, N) bool.
        budget: Items encoded at once, at least one text.
        query: Query vectors of the attention, (B, Q), or None; a deletion does not change them.
        with_embeddings: Whether attention is over states and embeddings, one after the other.
        only: The items that are deleted, (B, N) bool; None: all.

    Returns:
        (B, N, P); NaN off the mask, for the only item of a text and for items that are not deleted.
    """
    lengths, recurrences = text.sum(-1), []
    if encoder.reach is None:
        for name, network in encoder.named_children():
            step, orthogonal = _RECURRENCES[name], isinstance(encoder, OrthogonalLSTM)
            recurrences.append(Recurrence(network, embeddings, text, step, orthogonal))
        states = torch.cat([recurrence.hidden for recurrence in recurrences], dim=-1)
    else:
        states = encoder(embeddings, text)
    width = states.shape[-1] // max(1, len(recurrences))  # recurrences are of one size
    parts = [slice(start, start + width) for start in range(0, states.shape[-1], width)]
    states = torch.cat([states, embeddings], dim=-1) if with_embeddings else states
    precision = decoder.weight.dtype  # also under autocast
    scores, items = attention.score(states, query), decoder(states).to(precision)
    fixed = []
    for part in parts:
        others = states.clone()
        others[..., part] = 0
        fixed.append((attention.keys(others, query), decoder(others).to(precision)))
    values = torch.full_like(items, torch.nan)
    for texts, places, size in deletions(mask, lengths, _DELETIONS * budget, only):
        remaining = mask[texts, :size].scatter(1, places[:, None], False)
        new_scores, new_items = scores[texts, :size], items[texts, :size]
        changes = _changed_states(encoder, recurrences, embeddings, lengths, budget, texts, places)
        for number, deletion, place, changed in changes:
            part, flat = parts[number], texts[deletion] * text.shape[1] + place
            keys, added = (x.flatten(0, 1).index_select(0, flat) for x in fixed[number])
            asked = None if query is None else query[texts[deletion]]
            keys = keys.unsqueeze(1) + attention.keys(changed.unsqueeze(1), asked, part)
            new_scores[deletion, place] = attention.score_keys(keys, asked)[:, 0]
            changed_items = linear(changed, decoder.weight[:, part]).to(precision)
            new_items[deletion, place] = added + changed_items
        values[texts, places] = read(attention.normalize(new_scores, remaining), new_items)
    return values


def _changed_states(
    encoder: Encoder,
    recurrences: Sequence[Recurrence],
    embeddings: Tensor,
    lengths: Tensor,
    budget: int,
    texts: Tensor,
    places: Tensor,
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """The states that differ after deleting the tokens `places` (r,) of r `texts`.

    Recurrences resume from their states before the gap. Of an encoder with a `reach`, the
    states near the gap are computed from twice as many tokens around it, in blocks of texts within
    the budget. Such a window does not begin before the text, where the encoder pads by itself.

    Yields:
        Number of the recurrence, 0 of an encoder that has none; index of the deletion that changes a
        state (M,), position of the token in the full text (M,), and its new state (M, D).
    """
    for number, recurrence in enumerate(recurrences):
        # Several steps at a time, so that attention and decoder are not called for each.
        for change in recurrence.resume(texts, places, budget // 4):
            yield number, *change
    reach = encoder.reach
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
        yield 0, deletion + first, place[deletion, column], states
