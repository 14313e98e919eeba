"""Chunks in tags of their tokens, and where a head attends if it has a role."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import EOS, TextBatch


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


def role_targets(batch: TextBatch, punctuation: Tensor | None = None) -> dict[str, Tensor]:
    """The tokens that each token attends to in each role, (B, N, N) bool, by role.

    * `previous`, `next`, `same`: the token before, the one after, and the token itself.
    * `first`: the first token that the model reads; `separator`: all that end a text or a part of it.
    * `duplicate`: earlier equal tokens; `induction`: the tokens after these, other than the token itself.
      Special tokens have neither.
    * `punctuation`: tokens with these ids, (V,), if they are known.

    Args:
        batch: B texts of N tokens in a row.
        punctuation: Ids.
    """
    tokens, mask = batch.tokens, batch.mask
    places = torch.arange(tokens.shape[1], device=tokens.device)
    step = places - places[:, None]
    equal = (tokens.unsqueeze(2) == tokens.unsqueeze(1)) & batch.attendable().unsqueeze(2)
    equal = equal & (step < 0) & mask.unsqueeze(1)
    found = {"previous": step == -1, "next": step == 1, "same": step == 0}
    found["first"] = (mask & (mask.cumsum(-1) == 1)).unsqueeze(1)
    found["separator"] = (tokens == EOS).unsqueeze(1)
    if punctuation is not None:
        found["punctuation"] = torch.isin(tokens, punctuation).unsqueeze(1)
    found |= {"duplicate": equal, "induction": pad(equal, (1, 0))[..., :-1] & (step < 0)}
    both = mask.unsqueeze(2) & mask.unsqueeze(1)
    return {role: targets & both for role, targets in found.items()}


def group_targets(labels: Tensor, scheme: TagScheme | None) -> Tensor:
    """The other tokens of each token's chunk or, without a scheme, of its tag, (B, N, N) bool.

    Args:
        labels: Tags of tokens, (B, N) long, below 0 on those without one, which are left out.
        scheme: Chunk type and prefix of each tag; None: tags are of no chunks.
    """
    groups, real = labels, labels >= 0
    if scheme is not None and real.any():
        starts, _ = find_chunks(labels[real], (real.cumsum(-1) == 1)[real], scheme)
        inside = scheme.chunk.to(labels.device)[labels[real]] >= 0
        groups = torch.full_like(labels, -1)
        groups[real] = torch.where(inside, (starts >= 0).cumsum(0), -1)
    alike = (groups.unsqueeze(2) == groups.unsqueeze(1)) & (groups >= 0).unsqueeze(2)
    return alike & ~torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device)
