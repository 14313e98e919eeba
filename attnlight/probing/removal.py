"""Texts without some of their items: these are deleted, or replaced by something without meaning."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from attnlight.batch import MARKED, PAD, SEGMENT, UNK, AttentionModel, TextBatch
from attnlight.functional.ranking import item_places

Token = Literal["unk", "pad"]
_TOKENS = {"unk": UNK, "pad": PAD}


def keep_items(
    batch: TextBatch, texts: Tensor, kept: Tensor, longest: int | None = None
) -> tuple[TextBatch, Tensor]:
    """Texts of which only some items remain, and the place that each of these had.

    Args:
        batch: B texts of N items: tokens, or sentences of tokens.
        texts: Indices of the r texts, (r,); a text may occur several times.
        kept: Items that remain of each, boundary tokens included, (r, N) bool.
        longest: The most items that remain of a text; None: it is counted.

    Returns:
        The shortened texts, unlabelled, of L items, and the places (r, L) long of these items, of
        padding arbitrary ones.
    """
    longest = int(kept.sum(-1).max()) if longest is None else longest
    places = item_places(kept)[:, :longest]
    return take_items(batch, texts, places, kept.gather(1, places)), places


def take_items(batch: TextBatch, texts: Tensor, places: Tensor, real: Tensor) -> TextBatch:
    """Texts of some items in any order, unlabelled.

    Args:
        batch: B texts of N items: tokens, or sentences of tokens.
        texts: Indices of the r texts, (r,); a text may occur several times.
        places: Place of each item, (r, L) long.
        real: Which of them are items and not padding, (r, L) bool.
    """
    index, links = (texts[:, None], places), batch.links
    if links is not None:
        of_texts = places.unsqueeze(1).expand(-1, links.shape[1], -1)
        links = links[texts].gather(2, of_texts) * real.unsqueeze(1)
    real = real.view(*places.shape, *[1] * (batch.tokens.ndim - 2))
    return TextBatch(
        index=batch.index[texts],
        tokens=batch.tokens[index] * real,
        mask=batch.mask[index] & real,
        query=None if batch.query is None else batch.query[texts],
        query_mask=None if batch.query_mask is None else batch.query_mask[texts],
        allowed_classes=None if batch.allowed_classes is None else batch.allowed_classes[texts],
        target=None if batch.target is None else batch.target[texts],
        links=links,
        extras={name: values[index] * real for name, values in batch.extras.items()},
        known={name: values[texts] for name, values in batch.known.items()},
    )


def delete_tokens(batch: TextBatch, tokens: Tensor) -> TextBatch:
    """The texts, with their labels, without some `tokens`, bool in their shape; at least one remains.

    A sentence, or a whole word, of which no token remains is deleted.
    """
    kept, texts = batch.mask & ~tokens, torch.arange(len(batch), device=tokens.device)
    if tokens.ndim > 2:
        flat = TextBatch(
            index=batch.index.repeat_interleave(tokens.shape[1]),
            tokens=batch.tokens.flatten(0, 1),
            mask=batch.mask.flatten(0, 1),
            extras={name: values.flatten(0, 1) for name, values in batch.extras.items()},
        )
        every = torch.arange(len(flat), device=tokens.device)
        flat, _ = keep_items(flat, every, kept.flatten(0, 1))
        apart = flat.apply(lambda values: values.view(*tokens.shape[:2], *values.shape[1:]))
        batch = replace(batch, tokens=apart.tokens, mask=apart.mask, extras=apart.extras)
        kept = batch.mask.any(-1)
    return replace(keep_items(batch, texts, kept)[0], labels=batch.labels)


def replace_items(batch: TextBatch, items: Tensor, token: Token | Tensor) -> TextBatch:
    """The batch with another token in place of those of some items, boundary tokens excepted.

    It stays in the mask: the model reads and attends to it. It has no features of the replaced word,
    such as its part of speech, characters or evidence: `extras` are 0, except that a tagger's
    `marked` tokens stay its rows, and that it stays in its `segment`.

    Args:
        batch: B texts of N items: tokens, or sentences of tokens.
        items: The items, (B, N) bool, or the tokens, in their shape.
        token: The unknown token; padding, whose embedding is zero; or a token for each of the
            batch's, in their shape.
    """
    words = batch.attendable() & items.view(*items.shape, *[1] * (batch.tokens.ndim - items.ndim))
    extras = {
        name: values if name in (MARKED, SEGMENT) else values.masked_fill(words, 0)
        for name, values in batch.extras.items()
    }
    tokens = torch.where(words, _TOKENS[token] if isinstance(token, str) else token, batch.tokens)
    return replace(batch, tokens=tokens, extras=extras)


def repeat_half(batch: TextBatch, tokens: Tensor) -> TextBatch:
    """The texts with other tokens in place of all words, where the second half of them repeats the first.

    A last word without a counterpart begins the half again. `tokens` are long, in the shape of the
    batch's; those in place of a text's first half are used. All else is as of `replace_items`.
    """
    words, drawn = batch.attendable().flatten(1), tokens.flatten(1)
    half = (words.sum(-1, keepdim=True) // 2).clamp(min=1)
    source = (words.cumsum(-1) - 1).clamp(min=0) % half
    repeated = drawn.gather(1, item_places(words).gather(1, source))
    every = batch.mask.new_ones(batch.mask.shape[:2])
    return replace_items(batch, every, repeated.view_as(batch.tokens))


@torch.no_grad()
def replaced_embeddings(
    model: AttentionModel, batch: TextBatch, kind: Literal[Token, "zero"] | Tensor
) -> Tensor:
    """Embeddings of a batch with all words replaced, in the shape of `model.embed(batch)`.

    `kind` replaces a word: the zero vector, or the embedding of padding, of an unknown word, or of a
    token that is given for each of the batch's.
    Boundary tokens keep theirs. Replaced words stay in the mask, without features (`replace_items`).
    """
    if isinstance(kind, str) and kind == "zero":
        return model.embed(batch).masked_fill(batch.attendable().unsqueeze(-1), 0.0)
    return model.embed(replace_items(batch, batch.mask.new_ones(batch.mask.shape[:2]), kind))
