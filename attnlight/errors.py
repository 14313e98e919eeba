"""Errors in the user's input, reported in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin


class InputError(ValueError):
    """An error in a file, an option or a corpus, named by a message of one sentence.

    The command line prints the sentence and exits with status 2; no traceback is shown unless
    `ATTNLIGHT_DEBUG=1`.
    """


def one_line(error: BaseException) -> str:
    """The message of an error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def printable(text: str) -> str:
    """Text without control characters, which may be commands to a terminal: escaped as in Python.

    So are controls of direction and halves of surrogates, which a stream cannot encode.
    """
    controls = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(controls, lambda found: ascii(found[0])[1:-1], text)


def require_at_least(bound: float, **options: float | None) -> None:
    """Check that options are at least `bound`; None means that an option is not given.

    Raises:
        InputError: An option is smaller or not a number; the message names it and its value.
    """
    for name, value in options.items():
        if value is not None and not (isinstance(value, Real) and value >= bound):
            raise InputError(f"{name} is {value!r}; it must be at least {bound}.")


def require_words(owner: str, options: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check options whose type is a `Literal`, a union or a sequence of some: Python checks none.

    Raises:
        InputError: An option has another value; the message names it, its value and its `owner`.
    """
    for name in filter(options.__contains__, hints):
        hint, given, verb = hints[name], [options[name]], "is"
        if get_origin(hint) is Sequence:
            (hint,), given, verb = get_args(hint), options[name], "have"
        words = words_of(hint)
        for value in given if words else ():
            if value not in words:
                known = ", ".join(map(str, filter(None, words)))
                nearest = did_you_mean(str(value), map(str, words))
                raise InputError(
                    f"{owner}: {name} {verb} {value!r}{nearest}; expected one of: {known}."
                )


def words_of(hint: Any) -> list[Any]:  # noqa: ANN401
    """The values of a `Literal`, or of a union of some and None; of any other type none."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    found = [[None] if part is NoneType else words_of(part) for part in parts]
    return [word for words in found for word in words] if all(found) else []


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A hint in brackets with the candidate closest to a misspelt word, or an empty string.

    Example:
        >>> did_you_mean("attnetion", ["attention", "encoder"])
        " (did you mean 'attention'?)"
    """
    nearest = get_close_matches(word, list(candidates), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
