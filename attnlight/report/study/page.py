"""The page of a study: no script, and links to nothing but the report's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from attnlight.report.grids import Grid
from attnlight.report.markup import isolated, without_controls
from attnlight.report.page import Picture
from attnlight.report.study.verdict import Verdict
from attnlight.report.stylesheet import STYLESHEET


@dataclass(frozen=True)
class Shown:
    """A figure on the page with its heading and the stem of its files beside the page."""

    title: str
    stem: str
    picture: Picture


class Head(NamedTuple):
    """What stands at the top of a page, as plain text.

    Attributes:
        title: The name of the study.
        kind: What it is.
        lead: What it is about, a sentence or two.
        facts: What it is of; empty ones are left out.
    """

    title: str
    kind: str
    lead: str
    facts: Mapping[str, str]


def build_page(
    head: Head,
    verdicts: Sequence[Verdict],
    grids: Mapping[str, Grid],
    figures: Sequence[Shown],
    full: str,
) -> str:
    """The whole page as HTML; all that came from files is escaped.

    Args:
        head: What stands at its top.
        verdicts: What the study shows.
        grids: Its tables by the stem of their files.
        figures: Its figures.
        full: The file that holds every mean in full.
    """
    body = [
        _header(head),
        "<h2>What it shows</h2>\n",
        *map(_verdict, verdicts),
        f'<p class="note">Also {_link("verdict.md")}, {_link("verdict.csv")}.</p>\n<h2>Tables</h2>\n',
        *(grid.to_html() + _files(stem, ("csv", "md", "tex")) for stem, grid in grids.items()),
        f'<p class="note">Every mean in full: {_link(full)}.</p>\n',
        "<h2>Figures</h2>\n" if figures else "",
        *map(_figure, figures),
    ]
    title = escape(without_controls(head.title))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title} · attnlight</title>\n<style>\n{STYLESHEET}</style>\n</head>\n"
        f"<body>\n{''.join(body)}</body>\n</html>\n"
    )


def _header(head: Head) -> str:
    entries = "".join(
        f"<dt>{isolated(k)}</dt><dd>{isolated(v)}</dd>\n" for k, v in head.facts.items() if v
    )
    return (
        f"<h1>{isolated(head.title)} <small>{isolated(head.kind)}</small></h1>\n"
        f'<p class="lead">{isolated(head.lead)}</p>\n<dl>\n{entries}</dl>\n'
    )


def _verdict(verdict: Verdict) -> str:
    sentences = "".join(f"<p>{isolated(sentence)}</p>\n" for sentence in verdict.sentences)
    return f"<h3>{isolated(verdict.question)}</h3>\n{sentences}"


def _figure(shown: Shown) -> str:
    return (
        f"<h3>{isolated(shown.title)}</h3>\n"
        f'<figure><div class="scroll">{shown.picture.svg}</div>\n'
        f"<figcaption>{isolated(shown.picture.caption)}</figcaption></figure>\n"
        + _files(shown.stem, ("svg", "pdf", "png"))
    )


def _files(stem: str, endings: Sequence[str]) -> str:
    links = ", ".join(_link(f"{stem}.{ending}") for ending in endings)
    return f'<p class="note">Also {links}.</p>\n'


def _link(file: str) -> str:
    return f'<a href="{escape(file)}">{isolated(file)}</a>'
