"""Tables of text as HTML, Markdown, CSV and LaTeX, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    from attnlight.report.summary import Line
    from attnlight.statistics.bootstrap import MeanInterval

Rows = Mapping[str, NDArray[Any]]  # columns of a record, (R,) or (R, K), NaN where undefined
Format = Callable[["MeanInterval"], str]  # of a mean with its interval
# What plain LaTeX cannot set or would take as a command; a bracket after a line's end \\ would open
# an option.
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"}
    | {"[": "{[}", "]": "{]}", "\n": " ", "–": "--"}  # noqa: RUF001
    | {"−": "$-$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$"}  # noqa: RUF001
    | {"α": r"$\alpha$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "τ": r"$\tau$"}  # noqa: RUF001
    | {"Δ": r"$\Delta$", "∞": r"$\infty$"}
)


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose cells are text, formatted by whoever made it.

    Attributes:
        title: What it shows, a phrase; also the caption in LaTeX.
        frame: Its cells; the first column names the row, the others are aligned right.
        note: What a reader must know below the table; empty: nothing.
    """

    title: str
    frame: pd.DataFrame
    note: str = ""

    @staticmethod
    def of(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Table:
        """The table of some rows.

        Raises:
            ValueError: A row is longer or shorter than the head.
        """
        import pandas as pd

        if wrong := [len(row) for row in rows if len(row) != len(head)]:
            raise ValueError(f"a row of {title!r} has {wrong[0]} cells under {len(head)} headings.")
        return Table(title, pd.DataFrame(list(rows), columns=list(head), dtype=object), note)

    @property
    def head(self) -> list[str]:
        """Heading of each column."""
        return list(self.frame.columns)

    @property
    def rows(self) -> list[list[str]]:
        """Cells of each row."""
        return [list(row) for row in self.frame.itertuples(index=False, name=None)]

    def to_texts(self) -> dict[str, str]:
        """The table in each format of a file, by the file's ending."""
        text = self.frame.to_csv(index=False, lineterminator="\n")
        return {"csv": text, "md": self.to_markdown(), "tex": self.to_latex()}

    def to_markdown(self) -> str:
        """Title, table and note as Markdown."""
        title, note = map(_markdown_cell, (self.title, self.note))
        return f"**{title}**\n\n{markdown(self.frame)}" + (f"\n{note}\n" if note else "")

    def to_latex(self) -> str:
        r"""A LaTeX `table` with its caption; needs `\usepackage{booktabs}`."""
        escape = methodcaller("translate", _LATEX)
        styler = self.frame.map(escape).rename(columns=escape).style.hide()
        text: str = styler.to_latex(
            column_format="l" + "r" * (len(self.head) - 1),
            position_float="centering",
            hrules=True,
            caption=escape(self.title),
        )
        end = "\\end{tabular}\n"
        note = f"{end}\\par\\smallskip\\footnotesize {escape(self.note)}\n"
        return text.replace(end, note) if self.note else text


def markdown(frame: pd.DataFrame, left: int = 1) -> str:
    """A frame of text as a Markdown table, the first columns aligned left."""
    shown = frame.map(_markdown_cell).rename(columns=_markdown_cell)
    align = ["left"] * left + ["right"] * (len(frame.columns) - left)
    return f"{shown.to_markdown(index=False, disable_numparse=True, colalign=align)}\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table as docs/results.md has them, without spaces that align its cells."""
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    cells = [[_markdown_cell(cell) for cell in row] for row in (head, *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (cells[0], ruler, *cells[1:]))


def _markdown_cell(cell: str) -> str:
    return " ".join(cell.splitlines()).replace("|", "\\|")


def number(value: float) -> str:
    """Three decimals, or three digits where those would all be zero; a dash where undefined."""
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    if not np.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2e}"


def interval(found: Line | MeanInterval) -> str:
    """The interval as `[low, high]`."""
    return f"[{number(found.low)}, {number(found.high)}]"


def estimate(found: Line | MeanInterval) -> str:
    """Mean and interval as `mean [low, high]`; a dash where there is none."""
    return number(found.mean) if np.isnan(found.mean) else f"{number(found.mean)} {interval(found)}"


def percent(found: Line | MeanInterval) -> str:
    """A share with its interval in per cent, without the sign; a dash where undefined."""
    if np.isnan(found.mean):
        return number(found.mean)
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def probability(p: float) -> str:
    """A p-value to three decimals, or that it is below them; a dash where undefined."""
    return "< 0.001" if p < 0.001 else number(p)


def class_name(predicted: int | None, classes: Sequence[str] | None) -> str:
    """What a class is called, its number where there is no name; None: `all`."""
    names = classes or []
    if predicted is None:
        return "all"
    return names[predicted] if predicted < len(names) else f"class {predicted}"


def mean_cells(
    columns: Sequence[NDArray[Any]],
    rows: Rows,
    formats: Sequence[Format] | None = None,
) -> list[str]:
    """Cells of a line of means: each with its interval, then how many values the first is over.

    Args:
        columns: Values (R,) of each mean, NaN where undefined; they share their resamples of the
            rows' `index`.
        rows: Columns of the record.
        formats: `estimate` or `percent` for each mean; None: per cent for all.
    """
    from attnlight.statistics.bootstrap import bootstrap_means

    found = bootstrap_means(np.stack(columns, axis=1).astype(np.float64), rows["index"])
    pairs = zip(formats or [percent] * len(found), found, strict=True)
    return [*(written(mean) for written, mean in pairs), f"{found[0].defined:,}"]
