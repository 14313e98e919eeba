"""Tags of the BIO scheme: O outside of any chunk, B-<type> where one begins, I-<type> within it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch

from attnlight.errors import InputError
from attnlight.functional.chunks import TagScheme


@cache
def split_tag(tag: str) -> tuple[str, str]:
    """The prefix (O, B or I) and the chunk type of a tag, empty for O.

    Raises:
        InputError: The tag is not of the scheme.

    Example:
        >>> split_tag("B-NP")
        ('B', 'NP')
    """
    prefix, _, chunk = tag.partition("-")
    if tag != "O" and not (prefix in ("B", "I") and chunk):
        raise InputError(f"tag {tag!r} is not of the BIO scheme; expected O, B-<type> or I-<type>.")
    return prefix, chunk


def tags_of(chunks: Iterable[str]) -> list[str]:
    """All tags for these chunk types: O, then B and I of each.

    Example:
        >>> tags_of(["NP", "VP"])
        ['O', 'B-NP', 'I-NP', 'B-VP', 'I-VP']
    """
    return ["O", *(f"{prefix}-{chunk}" for chunk in chunks for prefix in "BI")]


def check_tags(place: str, tags: Sequence[str], valid: Iterable[str], strict: bool = True) -> None:
    """Check that the tags of a sentence, named by `place`, are valid and follow the scheme.

    With `strict` an I that does not continue a chunk of its type is refused.

    Raises:
        InputError: A tag is invalid; the message names the sentence, the token and the tag.
    """
    previous = ""
    for number, tag in enumerate(tags):
        where = f"{place}, token {number},"
        try:
            prefix, chunk = split_tag(tag)
        except InputError as error:
            raise InputError(f"{where} cannot be read: {error}") from None
        if tag not in valid:
            raise InputError(
                f"{where} has the tag {tag!r}, whose type does not occur in the training "
                "sentences; list all types in `chunks` to keep it."
            )
        if strict and prefix == "I" and chunk != previous:
            raise InputError(
                f"{where} has the tag {tag!r}, but no {chunk} before it to continue; with "
                "`strict: false` it begins a chunk, as in conlleval."
            )
        previous = chunk


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
