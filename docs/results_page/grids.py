"""A report's tables and sentences as the page has them."""

from __future__ import annotations

from collections.abc import Sequence

from attnlight.report.grids import Grid, markdown_table
from attnlight.report.study.sentences import Verdict


def place(study: str) -> str:
    """What the blocks of a study begin with."""
    return study.replace("-", "_")


def markdown(grid: Grid, added: Sequence[Sequence[str]] = ()) -> str:
    """A table with its note; the page has headings of its own."""
    note = f"\n{grid.note}\n" if grid.note else ""
    return markdown_table(grid.head, [*grid.rows, *added]) + note


def answers(found: Sequence[Verdict]) -> str:
    """Questions with their answers, as a list."""
    return "".join(f"* **{one.question}** {' '.join(one.sentences)}\n" for one in found)
