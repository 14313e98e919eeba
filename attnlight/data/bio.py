"""Tags of the BIO scheme: O outside of any chunk, B-<type> where one begins, I-<type> within it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from attnlight.errors import InputError


@cache
def split_tag(tag: str) -> tuple[str, str]:
    """What a tag says: O, B or I, and the chunk type, empty for O.

    Raises:
        InputError: It is not a tag of the scheme.

    Example:
        >>> split_tag("B-NP")
        ('B', 'NP')
    """
    prefix, _, chunk = tag.partition("-")
    if tag != "O" and not (prefix in ("B", "I") and chunk):
        raise InputError(f"tag {tag!r} is not of the BIO scheme: O, B-<type> or I-<type>.")
    return prefix, chunk


def tags_of(chunks: Iterable[str]) -> list[str]:
    """All tags of these chunk types: O, then B and I of each.

    Example:
        >>> tags_of(["NP", "VP"])
        ['O', 'B-NP', 'I-NP', 'B-VP', 'I-VP']
    """
    return ["O", *(f"{prefix}-{chunk}" for chunk in chunks for prefix in "BI")]


def check_tags(place: str, tags: Sequence[str], known: Iterable[str], strict: bool = True) -> None:
    """Refuse tags of a sentence that are unknown or break the scheme.

    Args:
        place: What messages call the sentence.
        tags: Its tags.
        known: The corpus's tags.
        strict: Refuse an I that goes on with no chunk of its type.

    Raises:
        InputError: It names the sentence, the token and the tag.
    """
    before = ""
    for number, tag in enumerate(tags):
        where = f"{place}, token {number},"
        try:
            prefix, chunk = split_tag(tag)
        except InputError as error:
            raise InputError(f"{where} cannot be read: {error}") from None
        if tag not in known:
            raise InputError(
                f"{where} has the tag {tag!r}, whose type the training sentences lack; list all "
                "types in `chunks` to keep it."
            )
        if strict and prefix == "I" and chunk != before:
            raise InputError(
                f"{where} has the tag {tag!r}, but no {chunk} stands before it to go on with; with "
                "`strict: false` it begins a chunk, as conlleval reads it."
            )
        before = chunk
