"""Errors in the user's input, reported in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """An error in a file, an option or a corpus, named by a message of one sentence.

    The command line prints the sentence and exits with status 2; no traceback is shown unless
    `ATTNLIGHT_DEBUG=1`.
    """


def one_line(error: BaseException) -> str:
    """The message of an error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def require_at_least(bound: float, **options: float | None) -> None:
    """Check that options are at least `bound`; None means that an option is not given.

    Raises:
        InputError: An option is smaller; the message names it and its value.
    """
    for name, value in options.items():
        if value is not None and value < bound:
            raise InputError(f"{name} is {value}; it must be at least {bound}.")


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A hint in brackets with the candidate closest to a misspelt word, or an empty string.

    Example:
        >>> did_you_mean("attnetion", ["attention", "encoder"])
        " (did you mean 'attention'?)"
    """
    nearest = get_close_matches(word, list(candidates), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
