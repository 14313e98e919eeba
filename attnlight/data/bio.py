"""Tags of tokens: of chunks, in the schemes BIO, BIOES, BILOU and IO, or without chunks."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache

import torch

from attnlight.errors import InputError
from attnlight.functional.chunks import TagScheme

_OF_CHUNKS = ("B", "I", "E", "L", "S", "U")  # a chunk ends with E or L; S and U are a whole one


@cache
def split_tag(tag: str) -> tuple[str, str]:
    """The prefix (O, B, I, E, L, S or U) and the chunk type of a tag, empty for O.

    Raises:
        InputError: The tag is of no scheme.

    Example:
        >>> split_tag("B-NP")
        ('B', 'NP')
    """
    prefix, _, chunk = tag.partition("-")
    if tag != "O" and not (prefix in _OF_CHUNKS and chunk):
        raise InputError(f"tag {tag!r} is not of the BIO scheme; expected O, B-<type> or I-<type>.")
    return prefix, chunk


def has_chunks(tags: Iterable[str], target: str = "tokens") -> bool:
    """Whether all tags are predicted, and by a scheme of chunks, unlike parts of speech."""
    return target == "tokens" and any(
        tag[0] in _OF_CHUNKS for tag in tags if tag[1:2] == "-" and tag[2:]
    )


def tags_of(chunks: Iterable[str], prefixes: Iterable[str] = "BI") -> list[str]:
    """All tags for these chunk types: O, then those of each with these prefixes.

    Example:
        >>> tags_of(["NP", "VP"])
        ['O', 'B-NP', 'I-NP', 'B-VP', 'I-VP']
    """
    return ["O", *(f"{prefix}-{chunk}" for chunk in chunks for prefix in prefixes)]


def check_tags(
    place: str, tags: Sequence[str], valid: Collection[str], strict: bool = True
) -> None:
    """Check that the tags of a sentence, named by `place`, are valid and follow the scheme.

    With `strict` an I, E or L that does not continue a chunk of its type is refused, unless no chunk
    begins with a tag of its own, as in IO.
    """
    chunks = has_chunks(valid)
    strict = strict and any(tag[:2] in ("B-", "S-", "U-") for tag in valid)
    previous = ""
    for number, tag in enumerate(tags):
        where = f"{place}, token {number},"
        try:
            prefix, chunk = split_tag(tag) if chunks else ("", "")
        except InputError as error:
            raise InputError(f"{where} cannot be read: {error}") from None
        if tag not in valid:
            kind = "whose type does" if chunks else "which does"
            remedy = "list all types in `chunks` to keep it" if chunks else "remove the sentence"
            raise InputError(
                f"{where} has the tag {tag!r}, {kind} not occur in the training sentences; {remedy}."
            )
        if strict and prefix in ("I", "E", "L") and chunk != previous:
            raise InputError(
                f"{where} has the tag {tag!r}, but no {chunk} before it to continue; with "
                "`strict: false` it begins a chunk, as in conlleval."
            )
        previous = "" if prefix in ("E", "L", "S", "U") else chunk


def tag_scheme(tags: Sequence[str]) -> TagScheme:
    """The scheme of tags with these names.

    Example:
        >>> tag_scheme(["O", "B-NP", "I-NP"]).chunk
        tensor([-1,  0,  0])
    """
    parts = [split_tag(tag) for tag in tags]
    chunks = ["", *sorted({chunk for _, chunk in parts if chunk})]
    return TagScheme(
        torch.tensor([chunks.index(chunk) - 1 for _, chunk in parts]),
        torch.tensor([prefix in ("I", "E", "L") for prefix, _ in parts]),
        torch.tensor([prefix in ("E", "L", "S", "U") for prefix, _ in parts]),
    )
