"""Pages from templates, in which text from files is escaped and cannot turn the text around it."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING
from unicodedata import bidirectional

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# What decides the direction of the text after it: embeddings, overrides, isolates, marks.
_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
_END_OF_ISOLATE = "\u2069"  # in a name it would end the isolate that `<bdi>` is


def render(template: str, **context: object) -> Markup:
    """A template of this package as HTML.

    All text that it prints is escaped and `isolated`, but for what is HTML already. Within an
    attribute text takes the filter `plain`, in a listing `visible`.

    Args:
        template: Its file name in `templates/`.
        context: What it reads; a name that is missing is an error.
    """
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(context))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from attnlight.report.tables import interval, interval_apart, number

    def printed(value: object) -> object:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return Markup(isolated(value))

    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printed,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {
        "plain": lambda text: Markup(escape(without_controls(str(text)))),
        "visible": lambda text: Markup(escape(visible_controls(str(text)))),
        "number": number,
        "interval": interval,
        "interval_apart": interval_apart,
    }
    return found


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
