"""`Table` under its former name and arguments, and Markdown tables without padding."""

from __future__ import annotations

from collections.abc import Sequence

from attnlight.report.tables import Table


class Grid(Table):
    """A table given by its head and rows; `Table.of` takes the same."""

    def __init__(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
    ) -> None:
        super().__init__(title, Table.of(title, head, rows).frame, note)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table as docs/results.md has them, without spaces that align its cells."""
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    cells = [[" ".join(c.splitlines()).replace("|", "\\|") for c in row] for row in (head, *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (cells[0], ruler, *cells[1:]))
