"""Chunks in tags of their tokens: their positions, and how many are predicted correctly."""

from typing import NamedTuple

import torch
from torch import Tensor


class TagScheme(NamedTuple):
    """Chunk type and prefix of each of C tags of the schemes BIO, BIOES, BILOU and IO.

    Attributes:
        chunk: Number of the chunk type, -1 for O, (C,) long.
        inside: Whether the tag may continue a chunk, as an I, E or L does, (C,) bool.
        last: Whether no tag continues its chunk, as after an E, L, S or U, (C,) bool.
    """

    chunk: Tensor
    inside: Tensor
    last: Tensor


def find_chunks(tags: Tensor, begins: Tensor, scheme: TagScheme) -> tuple[Tensor, Tensor]:
    """Start and end of chunks, as in conlleval (Tjong Kim Sang & Buchholz, 2000) and seqeval.

    A chunk starts at each B and S, and at an I or E that does not continue a chunk of its type; it ends
    at an E or S, and where no I or E of its type follows in the sentence.

    Args:
        tags: Classes of the tokens of all sentences, concatenated, (T,) long.
        begins: Whether a token is the first of its sentence, (T,) bool.
        scheme: Chunk type and prefix of each class.

    Returns:
        At the first token of each chunk its type and the place of its last token; -1 elsewhere,
        (T,) long each.
    """
    chunk, inside, last = (column.to(tags.device)[tags] for column in scheme)
    continues = inside & ~begins & (chunk == chunk.roll(1)) & ~last.roll(1)
    continues[:1] = False
    in_chunk = chunk >= 0
    starts = in_chunk & ~continues
    stops = in_chunk.clone()
    stops[:-1] &= ~continues[1:]
    ends = torch.full_like(tags, -1)
    # Chunks do not overlap, so the n-th stop belongs to the n-th start.
    ends[starts] = stops.nonzero().squeeze(1)
    return torch.where(starts, chunk, -1), ends


def count_chunks(predicted: Tensor, target: Tensor, begins: Tensor, scheme: TagScheme) -> Tensor:
    """Numbers of correct (type and both ends), predicted and target chunks, (3,) long.

    Predicted and true classes (T,) are of the tokens of all sentences; other arguments are those of
    `find_chunks`.

    Example:
        >>> inside, last = torch.tensor([[False, False, True], [False] * 3])
        >>> scheme = TagScheme(torch.tensor([-1, 0, 0]), inside, last)  # of the tags O, B, I
        >>> first = torch.tensor([True, False, False])
        >>> count_chunks(torch.tensor([2, 2, 0]), torch.tensor([1, 2, 0]), first, scheme)
        tensor([1, 1, 1])
    """
    predicted_types, predicted_ends = find_chunks(predicted, begins, scheme)
    target_types, target_ends = find_chunks(target, begins, scheme)
    correct = (
        (predicted_types >= 0) & (predicted_types == target_types) & (predicted_ends == target_ends)
    )
    return torch.stack([correct.sum(), (predicted_types >= 0).sum(), (target_types >= 0).sum()])
