"""Texts without some of their items: these are deleted, or replaced by something without meaning."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from attnlight.batch import MARKED, PAD, UNK, AttentionModel, TextBatch
from attnlight.functional.ranking import item_places

Token = Literal["unk", "pad"]
_TOKENS = {"unk": UNK, "pad": PAD}


def keep_items(batch: TextBatch, texts: Tensor, kept: Tensor) -> tuple[TextBatch, Tensor]:
    """Texts of which only some items remain, and the place that each of these had.

    Args:
        batch: B texts of N items: tokens, or sentences of tokens.
        texts: Indices of the r texts, (r,); a text may occur several times.
        kept: Items that remain of each, boundary tokens included, (r, N) bool.

    Returns:
        The shortened texts, unlabelled, of L items, and the places (r, L) long of these items, of
        padding arbitrary ones.
    """
    longest = int(kept.sum(-1).max())
    places = item_places(kept)[:, :longest]
    index = texts[:, None], places
    real = kept.gather(1, places).view(*places.shape, *[1] * (batch.tokens.ndim - 2))
    shortened = TextBatch(
        index=batch.index[texts],
        tokens=batch.tokens[index] * real,
        mask=batch.mask[index] & real,
        query=None if batch.query is None else batch.query[texts],
        query_mask=None if batch.query_mask is None else batch.query_mask[texts],
        allowed_classes=None if batch.allowed_classes is None else batch.allowed_classes[texts],
        extras={name: values[index] * real for name, values in batch.extras.items()},
    )
    return shortened, places


def replace_items(batch: TextBatch, items: Tensor, token: Token) -> TextBatch:
    """The batch with another token in place of those of some items, boundary tokens excepted.

    It stays in the mask: the model reads and attends to it. It has no features of the replaced word,
    such as its part of speech, characters or evidence: `extras` are 0, except that a tagger's
    `marked` tokens stay its rows.

    Args:
        batch: B texts of N items: tokens, or sentences of tokens.
        items: The items, (B, N) bool.
        token: The unknown token, or padding, whose embedding is zero.
    """
    words = batch.attendable() & items.view(*items.shape, *[1] * (batch.tokens.ndim - 2))
    extras = {
        name: values if name == MARKED else values.masked_fill(words, 0)
        for name, values in batch.extras.items()
    }
    return replace(batch, tokens=batch.tokens.masked_fill(words, _TOKENS[token]), extras=extras)


@torch.no_grad()
def replaced_embeddings(
    model: AttentionModel, batch: TextBatch, kind: Literal[Token, "zero"]
) -> Tensor:
    """Embeddings of a batch with all words replaced, in the shape of `model.embed(batch)`.

    `kind` replaces a word: the zero vector, or the embedding of padding or of an unknown word.
    Boundary tokens keep theirs. Replaced words stay in the mask, without features (`replace_items`).
    """
    if kind == "zero":
        return model.embed(batch).masked_fill(batch.attendable().unsqueeze(-1), 0.0)
    return model.embed(replace_items(batch, batch.mask.new_ones(batch.mask.shape[:2]), kind))
