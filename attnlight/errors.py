"""What the user got wrong, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A mistake in a file, an option or a corpus; the message is one sentence that names it.

    The command line prints the sentence and exits with status 2; no traceback is shown unless
    `ATTNLIGHT_DEBUG=1`.
    """


def one_line(error: Exception) -> str:
    """The message of another program's error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def require_at_least(least: float, **options: float | None) -> None:
    """Refuse options below a number; None is not given.

    Raises:
        InputError: It names the option and its value.
    """
    for name, value in options.items():
        if value is not None and value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}.")


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A question in brackets that names the candidate nearest to a misspelt word, or nothing.

    Example:
        >>> did_you_mean("attnetion", ["attention", "encoder"])
        " (did you mean 'attention'?)"
    """
    nearest = get_close_matches(word, list(candidates), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
