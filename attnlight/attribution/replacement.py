"""Embeddings of a text whose words are replaced by something without meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from attnlight.batch import PAD, UNK, AttentionModel, TextBatch

Replacement = Literal["zero", "pad", "unk"]


@torch.no_grad()
def replaced_embeddings(model: AttentionModel, batch: TextBatch, kind: Replacement) -> Tensor:
    """Embeddings of a batch with all words replaced, in the shape of `model.embed(batch)`.

    Boundary tokens keep theirs, and so do a tagger's other features of a token unless the vectors
    are zero. Replaced words stay in the mask: the model reads and attends to them.

    Args:
        model: The model.
        batch: B texts.
        kind: What replaces a word: the zero vector, or the embedding of padding or of an unknown word.
    """
    words = batch.attendable()
    if kind == "zero":
        return model.embed(batch).masked_fill(words.unsqueeze(-1), 0.0)
    token = batch.tokens.new_tensor(PAD if kind == "pad" else UNK)
    return model.embed(replace(batch, tokens=torch.where(words, token, batch.tokens)))
