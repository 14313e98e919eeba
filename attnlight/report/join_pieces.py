"""Tokens as people read them: put together where they stand in their text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_SPACE = re.compile(r"\s+")
_BEFORE_WORDS, _INSIDE_WORDS = ("\u0120", "\u2581"), "##"  # marks of tokens whose source is unknown


class Piece(NamedTuple):
    """A part of a text that is shown as one."""

    # What stands between it and the piece before: spaces, and what the tokenizer dropped.
    before: str
    text: str  # its characters
    # Places of its tokens: several where these are bytes of one character; none of the last piece,
    # which only has what stands after all tokens.
    tokens: list[int]


def join_pieces(
    tokens: Sequence[str],
    special: Sequence[bool],
    text: str = "",
    spans: Sequence[Sequence[int]] = (),
) -> list[Piece]:
    """The pieces of a text in order.

    `special` tokens are left out, as those are that attention does not weigh. Spans are [start,
    end) of each token in the text, empty of a token that is not in it; without a text pieces are
    joined by the marks of their tokens.
    """
    pieces: list[Piece] = []
    if not text:
        marked = any(token.startswith(_BEFORE_WORDS) for token in tokens)
        for place, token in enumerate(tokens):
            if not special[place]:
                inside = token.startswith(_INSIDE_WORDS) and token != _INSIDE_WORDS
                inside |= marked and not token.startswith(_BEFORE_WORDS)
                shown = token.removeprefix(_INSIDE_WORDS).lstrip("".join(_BEFORE_WORDS)) or token
                pieces.append(Piece(" " if pieces and not inside else "", shown, [place]))
        return pieces
    stop, apart = 0, ""
    for place, (start, end) in enumerate(spans):
        if start == end:
            if not special[place]:
                pieces.append(Piece(" " if pieces else "", tokens[place], [place]))
                apart = " "
        elif end <= stop and pieces:
            pieces[-1].tokens.append(place)
        else:
            first = max(start, stop)
            body = text[first:end].strip() or text[first:end]  # a token may be a space
            begin = text.index(body, first)
            gap = _SPACE.sub(" ", text[stop:begin])
            pieces.append(Piece(gap or apart, _SPACE.sub(" ", body), [place]))
            stop, apart = begin + len(body), ""
    rest = _SPACE.sub(" ", text[stop:]).rstrip()
    return pieces if any(map(str.isalnum, rest)) else [*pieces, Piece(rest, "", [])]


def of_pieces(
    pieces: Sequence[Piece], values: Sequence[float | None], largest: bool = False
) -> list[float | None]:
    """The sum of the values of each piece's tokens, or the largest of them; None if none is known."""
    known = [[x for x in map(values.__getitem__, one.tokens) if x is not None] for one in pieces]
    return [(max if largest else sum)(numbers) if numbers else None for numbers in known]
