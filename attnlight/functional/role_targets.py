"""Where a head attends if it has a role: the token before, an earlier same token, its chunk and so on."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import EOS, TextBatch
from attnlight.functional.chunks import TagScheme, find_chunks


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
