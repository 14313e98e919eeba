"""What the page's sentences are made of: a sentence stands as long as its tables bear it out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_WIDTH = 105
_REFUSED = re.compile(r"<!-- refused: (.*?) -->", re.DOTALL)


def claim(holds: bool, sentence: str) -> str:
    """A sentence, or a mark in its place that the page does not show and a check refuses.

    Args:
        holds: Whether the tables bear the sentence out.
        sentence: The sentence, its figures taken from the tables.
    """
    return sentence if holds else f"<!-- refused: {sentence} -->"


def refused(page: str) -> list[str]:
    """The sentences of a page that its records do not bear out."""
    return [" ".join(found.split()) for found in _REFUSED.findall(page)]


def paragraph(*sentences: str) -> str:
    """Sentences as one paragraph."""
    return textwrap.fill(" ".join(sentences), _WIDTH, **_WHOLE_WORDS) + "\n"


def bullets(items: Iterable[str]) -> str:
    """Sentences as a list."""
    return "".join(
        textwrap.fill(item, _WIDTH, initial_indent="* ", subsequent_indent="  ", **_WHOLE_WORDS)
        + "\n"
        for item in items
    )


def series(names: list[str]) -> str:
    """Names as an English series."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


_WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}
