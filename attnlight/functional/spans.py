"""Chunks in BIO tags: where they are, and how many of them are found."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TagScheme(NamedTuple):
    """What each of C tags of the BIO scheme says.

    Attributes:
        chunk: Number of the chunk type, -1 for O, (C,) long.
        inside: Whether it is an I, (C,) bool.
    """

    chunk: Tensor
    inside: Tensor


def find_chunks(tags: Tensor, begins: Tensor, scheme: TagScheme) -> tuple[Tensor, Tensor]:
    """Where chunks start and end, as conlleval (Tjong Kim Sang & Buchholz, 2000) reads tags.

    A chunk starts at each B, and at an I that does not go on with a chunk of its type; it ends
    where no I of its type follows in the sentence.

    Args:
        tags: Classes of the tokens of all sentences, one after the other, (T,) long.
        begins: Whether a token is the first of its sentence, (T,) bool.
        scheme: What the classes say.

    Returns:
        Chunk type at the first token of each chunk, -1 elsewhere, and the place of its last token
        there, -1 elsewhere, (T,) long each.
    """
    chunk, inside = (part.to(tags.device)[tags] for part in scheme)
    goes_on = inside & ~begins & (chunk == chunk.roll(1))
    goes_on[:1] = False
    covered = chunk >= 0
    starts = covered & ~goes_on
    stops = covered.clone()
    stops[:-1] &= ~goes_on[1:]
    ends = torch.full_like(tags, -1)
    # Chunks do not overlap: the n-th start and the n-th stop belong together.
    ends[starts] = stops.nonzero().squeeze(1)
    return torch.where(starts, chunk, -1), ends


def count_chunks(predicted: Tensor, target: Tensor, begins: Tensor, scheme: TagScheme) -> Tensor:
    """Chunks found right (type and both ends), found, and there to be found.

    Args:
        predicted: Predicted classes of the tokens of all sentences, (T,) long.
        target: Their true classes, (T,) long.
        begins: Whether a token is the first of its sentence, (T,) bool.
        scheme: What the classes say.

    Returns:
        The three counts, (3,) long.

    Example:
        >>> scheme = TagScheme(torch.tensor([-1, 0, 0]), torch.tensor([False, False, True]))  # O B I
        >>> first = torch.tensor([True, False, False])
        >>> count_chunks(torch.tensor([2, 2, 0]), torch.tensor([1, 2, 0]), first, scheme)
        tensor([1, 1, 1])
    """
    found, found_ends = find_chunks(predicted, begins, scheme)
    there, ends = find_chunks(target, begins, scheme)
    right = (found >= 0) & (found == there) & (found_ends == ends)
    return torch.stack([right.sum(), (found >= 0).sum(), (there >= 0).sum()])
