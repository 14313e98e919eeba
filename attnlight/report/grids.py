"""Tables of text: as part of the page, and as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from attnlight.report.markup import isolated, without_controls

# What plain LaTeX cannot set or would take as a command.
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "[": "{[}",  # after a line's end \\ it would open an option
        "]": "{]}",
        "–": "--",  # noqa: RUF001
        "−": "$-$",  # noqa: RUF001
        "×": r"$\times$",  # noqa: RUF001
        "±": r"$\pm$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "∞": r"$\infty$",
        "α": r"$\alpha$",  # noqa: RUF001
        "ε": r"$\varepsilon$",
        "λ": r"$\lambda$",
        "τ": r"$\tau$",
        "Δ": r"$\Delta$",
        "\n": " ",
    }
)

_INTERVAL = re.compile(r"(.+) (\[.+\])", re.DOTALL)


@dataclass(frozen=True)
class Grid:
    """A table whose cells are text, formatted by whoever made it.

    The first column names the row and is aligned left; the others hold numbers, aligned right.

    Attributes:
        title: What it shows, a phrase; also the caption in LaTeX.
        head: Heading of each column.
        rows: One sequence of cells for each row, as long as `head`.
        note: What a reader must know below the table; empty: nothing.

    Raises:
        ValueError: A row is longer or shorter than the head.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(
                    f"a row of {self.title!r} has {len(row)} cells under {len(self.head)} headings."
                )

    def to_html(self) -> str:
        """Title, table and note as HTML; all text is escaped."""
        head = "".join(f'<th scope="col">{isolated(name)}</th>' for name in self.head)
        rows = "".join(f"<tr>{self._html_cells(row)}</tr>\n" for row in self.rows)
        note = f'<p class="note">{isolated(self.note)}</p>\n' if self.note else ""
        return (
            f'<h4>{isolated(self.title)}</h4>\n<div class="scroll"><table>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n{note}"
        )

    def _html_cells(self, row: Sequence[str]) -> str:
        first = "".join(f'<th scope="row">{isolated(cell)}</th>' for cell in row[:1])
        return first + "".join(
            f'<td data-label="{escape(without_controls(name))}">{_html_cell(cell)}</td>'
            for name, cell in zip(self.head[1:], row[1:], strict=True)
        )

    def to_markdown(self) -> str:
        """Title, table and note as Markdown."""
        parts = [f"**{_one_line(self.title)}**\n", markdown_table(self.head, self.rows)]
        return "\n".join(parts + ([f"{_one_line(self.note)}\n"] if self.note else []))

    def to_csv(self) -> str:
        """Head and rows as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()

    def to_latex(self) -> str:
        r"""A LaTeX `table` with its caption; needs `\usepackage{booktabs}`."""
        head, *rows = (
            " & ".join(cell.translate(_LATEX) for cell in row) + r" \\"
            for row in [self.head, *self.rows]
        )
        note = rf"\par\smallskip\footnotesize {self.note.translate(_LATEX)}"
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{self.title.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *rows, r"\bottomrule"),
            r"\end{tabular}",
            *([note] if self.note else []),
            r"\end{table}",
        ]
        return "".join(f"{line}\n" for line in lines)


def _html_cell(cell: str) -> str:
    """A cell whose interval, `[low, high]` at its end, stands on a line of its own."""
    found = _INTERVAL.fullmatch(cell)
    if found is None:
        return isolated(cell)
    return f"{isolated(found[1])} <small>{isolated(found[2])}</small>"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table.

    Args:
        head: Heading of each column.
        rows: Cells of each row.
        left: How many columns, from the first, are aligned left.
    """
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    lines = [[_markdown(cell) for cell in head], ruler, *([_markdown(c) for c in r] for r in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _markdown(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return text.replace("\n", " ")
