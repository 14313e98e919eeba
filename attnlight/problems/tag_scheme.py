"""The chunks that the names of tags speak of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attnlight.data.bio import split_tag
from attnlight.functional.chunks import TagScheme


def tag_scheme(tags: Sequence[str]) -> TagScheme:
    """The scheme of tags with these names.

    Raises:
        InputError: A name is not `O`, `B-<type>` or `I-<type>`.

    Example:
        >>> tag_scheme(["O", "B-NP", "I-NP"]).chunk
        tensor([-1,  0,  0])
    """
    parts = [split_tag(tag) for tag in tags]
    chunks = ["", *sorted({chunk for _, chunk in parts if chunk})]
    return TagScheme(
        torch.tensor([chunks.index(chunk) - 1 for _, chunk in parts]),
        torch.tensor([prefix == "I" for prefix, _ in parts]),
    )
