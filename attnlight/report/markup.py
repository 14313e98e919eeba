"""Text from files as HTML, which cannot change how the text around it reads."""

from __future__ import annotations

import re
from html import escape
from unicodedata import bidirectional

# What decides the direction of the text after it: embeddings, overrides, isolates, marks.
_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
_END_OF_ISOLATE = "\u2069"  # in a name it would end the isolate that `<bdi>` is


def isolated(text: str) -> str:
    r"""Text as HTML that keeps its direction to itself.

    Example:
        >>> isolated("a < é"), isolated("\u05d0")
        ('a &lt; é', '<bdi>א</bdi>')
    """
    if _CONTROLS.search(text) or any(bidirectional(letter) in _RIGHT_TO_LEFT for letter in text):
        return f"<bdi>{escape(text.replace(_END_OF_ISOLATE, ''))}</bdi>"
    return escape(text)


def without_controls(text: str) -> str:
    """Text without the controls of its direction, for where there is no `<bdi>`."""
    return _CONTROLS.sub("", text)


def visible_controls(text: str) -> str:
    r"""Text whose controls of direction stand as escapes.

    Example:
        >>> visible_controls("a\u202eb")
        'a\\u202eb'
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
