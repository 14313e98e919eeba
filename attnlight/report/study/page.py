"""The page of a study: no script, and links to nothing but the report's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnlight.report.markup import render
from attnlight.report.page import Picture
from attnlight.report.study.verdict import Verdict
from attnlight.report.tables import Table


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
    grids: Mapping[str, Table],
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
    return render(
        "study.html.jinja",
        title=head.title,
        head=head,
        facts=[(name, [value]) for name, value in head.facts.items() if value],
        verdicts=verdicts,
        tables=grids,
        figures=figures,
        full=full,
    )
