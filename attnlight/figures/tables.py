"""Tables of text as Markdown, CSV and LaTeX, and the format of their numbers."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.markup import escape
from rich.table import Table as RichTable
from typing_extensions import override

from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means
from attnlight.storage.files import write_text

Rows = Mapping[str, NDArray[Any]]  # columns of a record, (R,) or (R, K), NaN where undefined
Format = Callable[[MeanInterval], str]  # of a mean with its interval
# Name, cells and text fields of a table described in `attnlight.figures`.
RecordTable = tuple[str, list[list[str]], dict[str, Any]]
# Characters that LaTeX cannot set or would read as commands; a bracket after \\ would open an
# option.
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"}
    | {"[": "{[}", "]": "{]}", "\n": " ", "–": "--"}  # noqa: RUF001
    | {"−": "$-$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$"}  # noqa: RUF001
    | {"α": r"$\alpha$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "τ": r"$\tau$"}  # noqa: RUF001
    | {"Δ": r"$\Delta$", "∞": r"$\infty$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)

# Controls of direction: what opens an embedding or override, what opens an isolate, what closes each.
_EMBEDDINGS, _ISOLATES = "\u202a\u202b\u202d\u202e", "\u2066\u2067\u2068"
# Bidirectional control characters: embeddings, overrides, isolates and marks.
CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_POP = "\u202c\u2069"
_FORMULA = re.compile("['=+@\\t\\r\\n\\-\uff1d\uff0b\uff0d\uff20]")
_NUMBERS = re.compile(r"[-+\d.,e∞%[\] ]*")  # also with an interval


class Interval(Protocol):
    """A mean with its interval: `MeanInterval`, or over seeds `SeedInterval`."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def low(self) -> float:
        """Lower end of the interval; NaN without one."""

    @property
    def high(self) -> float:
        """Upper end."""


class Table(NamedTuple):
    """A table of formatted cells."""

    title: str  # its title, a phrase; also the caption in LaTeX
    # Heading of each column; the first column names the row, the others are aligned right.
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # cells of each row
    note: str = ""  # the note below the table; may be empty

    def to_markdown(self) -> str:
        """Title, table and note as Markdown."""
        title, note = map(_markdown_cell, (self.title, self.note))
        text = markdown_table(self.head, self.rows, aligned=True)
        return f"**{title}**\n\n{text}" + (f"\n{note}\n" if note else "")

    def to_rich(self) -> RichTable:
        """The title and the cells for the terminal, where long cells of the first column wrap."""
        style: dict[str, Any] = {"show_edge": False, "pad_edge": False, "title_justify": "left"}
        style |= {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
        table = RichTable(title=escape(self.title), **style)
        for number, heading in enumerate(self.head):
            justify: Any = "right" if number else "left"
            table.add_column(heading, overflow="fold", justify=justify, no_wrap=number > 0)
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def to_texts(self) -> dict[str, str]:
        """The table as CSV, Markdown and LaTeX (with `booktabs`), by the ending of its file."""
        import pandas as pd

        shown = self.to_markdown()  # refuses a row that is too short
        frame = pd.DataFrame(self.rows, columns=self.head, dtype=object)
        in_latex = methodcaller("translate", _LATEX)
        styler = frame.map(in_latex).rename(columns=in_latex).style.hide()
        latex = styler.to_latex(
            column_format="l" + "r" * (len(self.head) - 1),
            position_float="centering",
            hrules=True,
            caption=in_latex(self.title),
        )
        if self.note:
            end = "\\end{tabular}\n"
            note = f"{end}\\par\\smallskip\\footnotesize {in_latex(self.note)}\n"
            latex = latex.replace(end, note)
        return {"csv": to_csv(self.head, self.rows), "md": shown, "tex": latex}

    def write(self, stem: Path) -> None:
        """Write the table in each format; the stem is a path without an ending."""
        for ending, text in self.to_texts().items():
            write_text(stem.with_name(f"{stem.name}.{ending}"), text)


def to_csv(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, in which a spreadsheet takes no text for a formula.

    Text that is no number and begins with one of = + - @ (in either width), a tab, a line break or an
    apostrophe gets an apostrophe before it: without its first apostrophe it is what it was. NaN and
    None are empty.
    """
    lines = []
    for row in (head, *rows):
        stream = io.StringIO(newline="")
        cells = ["" if isinstance(c, float | np.floating) and np.isnan(c) else c for c in row]
        texts = (cell if isinstance(cell, str) else "" for cell in cells)
        formulas = [_FORMULA.match(text) and not _NUMBERS.fullmatch(text) for text in texts]
        marked = zip(cells, formulas, strict=True)
        csv.writer(stream).writerow(f"'{cell}" if formula else cell for cell, formula in marked)
        lines.append(stream.getvalue().removesuffix("\r\n"))  # by which it also quotes these two
    return "".join(f"{line}\n" for line in lines)


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, aligned: bool = False
) -> str:
    """A Markdown table with the first columns aligned left; `aligned` pads the cells.

    Raises:
        ValueError: The length of a row differs from that of the head.
    """
    if wrong := [row for row in rows if len(row) != len(head)]:
        raise ValueError(
            f"the row {wrong[0]} has {len(wrong[0])} cells under {len(head)} headings."
        )
    first, *others = [[_markdown_cell(cell) for cell in row] for row in (head, *rows)]
    right = len(head) - left
    if aligned:
        from tabulate import tabulate

        align = ["left"] * left + ["right"] * right
        return f"{tabulate(others, first, 'pipe', disable_numparse=True, colalign=align)}\n"
    ruler = ["---"] * left + ["---:"] * right
    return "".join(f"| {' | '.join(line)} |\n" for line in (first, ruler, *others))


def _markdown_cell(cell: str) -> str:
    return " ".join(cell.splitlines()).replace("|", "\\|")


def number(value: float) -> str:
    """Three decimals, or three digits for values below 0.001; a dash if undefined."""
    text = f"{value:.2e}" if 0 < abs(value) < 0.001 else f"{value:z.3f}"
    return text.replace("inf", "∞").replace("nan", "–")  # noqa: RUF001


def filled(text: str, **fields: object) -> str:
    """The text with its fields formatted.

    A number that rounds to 0 has no minus, NaN is a dash, and a space stands before `%`.
    """
    return _Numbers().format(text, **fields)


class _Numbers(Formatter):
    """The fields of `filled`."""

    @override
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, float) and np.isnan(value):
            return "–"  # noqa: RUF001
        form = f"z{format_spec}" if format_spec.startswith(".") else format_spec
        formatted = str(super().format_field(value, form))
        return formatted.replace("%", " %") if form.endswith("%") else formatted


def interval(mean: Interval, form: Callable[[float], str] = number) -> str:
    """The interval as `[low, high]`; in place of a missing one the values of two seeds, if known."""
    if not np.isnan(mean.low):
        return f"[{form(mean.low)}, {form(mean.high)}]"
    values = getattr(mean, "values", ())
    return f"({', '.join(map(form, values))} by seed)" if len(values) == 2 else "(no interval)"


def estimate(mean: Interval, form: Callable[[float], str] = number, spread: float = np.nan) -> str:
    """Mean and interval as `mean [low, high]`, after the mean ` ± spread` if known; a dash if undefined."""
    if np.isnan(mean.mean):
        return form(np.nan)
    spread_text = "" if np.isnan(spread) else f" ± {form(spread)}"
    return f"{form(mean.mean)}{spread_text} {interval(mean, form)}"


def percent(mean: Interval) -> str:
    """A share with its interval in per cent, without the sign; a dash if undefined."""
    return estimate(mean, lambda share: number(share) if np.isnan(share) else f"{100 * share:z.1f}")


def probability(p: float) -> str:
    """A p-value to three decimals, or `< 0.001`; a dash if undefined."""
    return "< 0.001" if p < 0.001 else number(p)


def balanced(text: str) -> str:
    r"""Text whose direction controls end with it, so that what follows keeps its direction.

    It closes what it opens, and closes nothing else.

    Example:
        >>> balanced("\u202eevil"), balanced("evil\u2069")
        ('\u202eevil\u202c', 'evil')
    """
    kept, pending = [], ""  # what closes the controls that are open
    for letter in text:
        if letter in _POP:
            inner, found, _ = pending.rpartition(letter)
            if not found or (letter == _POP[0] and pending[-1] != letter):
                continue
            pending = inner
        pending += _POP[0] * (letter in _EMBEDDINGS) + _POP[1] * (letter in _ISOLATES)
        kept.append(letter)
    return "".join(kept) + pending[::-1]


def class_name(predicted: int | None, classes: Sequence[str] | None) -> str:
    """Name of a class, or its number if it has none; `all` for None."""
    names = classes or []
    if predicted is None:
        return "all"
    return balanced(names[predicted]) if predicted < len(names) else f"class {predicted}"


def by_cluster(rows: Rows, column: str) -> Rows:
    """The rows that are in a cluster, in ascending order of these, which are the `index`."""
    known = np.flatnonzero(~np.isnan(rows[column]))
    order = known[rows[column][known].argsort(kind="stable")]
    chosen = {name: values[order] for name, values in rows.items()}
    return chosen | {"index": chosen[column].astype(np.int64)}


def mean_cells(
    columns: Sequence[NDArray[Any]], rows: Rows, formats: Sequence[Format] | None = None
) -> list[str]:
    """Cells of a row of means: each with its interval, then the number of values of the first.

    Columns (R,) are NaN where undefined and share the resamples of the rows' `index`; formats are
    `estimate` or `percent` for each mean, None: `percent` for all.
    """
    means = bootstrap_means(np.stack(columns, axis=1).astype(np.float64), rows["index"])
    pairs = zip(formats or [percent] * len(means), means, strict=True)
    return [*(written(mean) for written, mean in pairs), f"{means[0].defined:,}"]
