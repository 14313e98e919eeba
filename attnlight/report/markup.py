"""Renders pages from templates; text from files is escaped and its direction isolated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import bidirectional

from markupsafe import Markup, escape

from attnlight.data.tokenization import BETWEEN
from attnlight.figures.tables import CONTROLS, Table, balanced, class_name, interval, number
from attnlight.storage.files import read_yaml

if TYPE_CHECKING:
    from jinja2 import Environment

_RIGHT_TO_LEFT = {"R", "AL", "AN"}
_SENTENCE = 60  # characters of a cell that wraps


def render(template: str, **context: object) -> Markup:
    """A template of this package as HTML.

    All text is escaped and `isolated`, except `Markup`. Text within an attribute takes the filter
    `plain`, which drops direction controls; text in a listing takes `visible`, which prints them as
    escapes. A missing variable is an error.
    """
    return Markup(_environment().get_template(template).render(context))


_read_once = cache(read_yaml)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=isolated,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "plain": plain,
        "visible": lambda text: escape(CONTROLS.sub(lambda c: f"\\u{ord(c[0]):04x}", str(text))),
        "class_name": class_name,
        "number": number,
        "interval": interval,
        "table": table_html,
        "with_code": with_code,
    }
    environment.globals["between"] = BETWEEN
    return environment


def plain(text: object) -> Markup:
    """Text for an attribute, without direction controls."""
    return escape(CONTROLS.sub("", str(text)))


def described_table(
    name: str, rows: Sequence[Sequence[str]], head: Sequence[str] = (), **fields: object
) -> Table:
    """A table of `tables.yaml` with further headings, and the fields of its title and note."""
    words = _read_once(Path(__file__).with_name("tables.yaml"))[name]
    title, note = (words[part].format(**fields) for part in ("title", "note"))
    return Table(title, (*words["head"], *head), rows, note)


def table_html(table: Table) -> Markup:
    """A table with its title and note; intervals of cells are set in small type, sentences wrap."""
    start = [f'<td data-label="{plain(heading)}">' for heading in table.head]
    heads = "".join(f'<th scope="col">{isolated(heading)}</th>' for heading in table.head)
    rows = []
    for name, *cells in table.rows:
        row = f'<tr><th scope="row">{isolated(name)}</th>'
        for opening, cell in zip(start[1:], cells, strict=True):
            mean, gap, ends = (cell if cell.endswith("]") else "").rpartition(" [")
            small = f" <small>[{isolated(ends)}</small>" if gap else ""
            opening = (
                opening.replace("<td", '<td class="text"') if len(cell) > _SENTENCE else opening
            )
            row += f"{opening}{isolated(mean if gap else cell)}{small}</td>"
        rows.append(f"{row}</tr>\n")
    note = f'\n<p class="note">{with_code(table.note)}</p>' if table.note else ""
    return Markup(
        f"<h4>{isolated(table.title)}</h4>\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{plain(table.title)}"><table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody></table></div>{note}"
    )


def with_code(text: object) -> Markup:
    """The text as HTML, with spans between backticks as code.

    Example:
        >>> with_code("run `a < b`")
        Markup('run <code>a &lt; b</code>')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(isolated(text))))


def isolated(value: object) -> object:
    r"""Text as HTML with isolated direction; `Markup` and other types are returned unchanged.

    Example:
        >>> isolated("a < é"), isolated("\u05d0")
        (Markup('a &lt; é'), Markup('<bdi>א</bdi>'))
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if CONTROLS.search(value) or any(bidirectional(letter) in _RIGHT_TO_LEFT for letter in value):
        return Markup("<bdi>{}</bdi>").format(balanced(value))
    return escape(value)
