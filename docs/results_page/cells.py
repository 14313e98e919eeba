"""The cells of the page's tables, read back by the sentences that rest on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from attnlight.errors import InputError

_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
_INTERVAL = re.compile(rf"\[({_NUMBER}), ({_NUMBER})\]")


class Cell(NamedTuple):
    """A figure of a table.

    Attributes:
        text: The whole cell.
        number: Its first number as it is written, `nan` where it has none.
        ends: Ends of its interval as they are written, empty where it has none.
    """

    text: str
    number: str
    ends: tuple[str, ...]

    @property
    def value(self) -> float:
        """The number."""
        return _float(self.number)

    @property
    def low(self) -> float:
        """Lower end of its interval, NaN where it has none."""
        return _float(self.ends[0]) if self.ends else float("nan")

    @property
    def high(self) -> float:
        """Upper end."""
        return _float(self.ends[1]) if self.ends else float("nan")

    @property
    def above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    @property
    def below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0

    @property
    def open(self) -> bool:
        """Whether the interval holds 0."""
        return self.low <= 0 <= self.high

    def beyond(self, other: Cell) -> bool:
        """Whether the interval lies above that of another cell."""
        return self.low > other.high

    def __str__(self) -> str:
        return f"{self.number} [{', '.join(self.ends)}]" if self.ends else self.number

    @property
    def size(self) -> str:
        """The number with its interval, without the sign of the number."""
        if self.value >= 0:
            return str(self)
        number, *ends = (
            x[1:] if x.startswith("-") else f"-{x}" if _float(x) else x
            for x in (self.number, *reversed(self.ends))
        )
        return str(Cell(self.text, number, tuple(ends)))


class Tables:
    """Every table of the page, by the name of its place.

    Args:
        blocks: What stands in each place.
    """

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self.blocks = blocks

    def rows(self, name: str, *words: str) -> list[dict[str, str]]:
        """The rows of a table by column; a column whose name occurs again is `NAME 2`.

        An empty first cell is that of the row above.

        Args:
            name: The table.
            words: Each is a cell of the rows that are wanted, or a cell begins with it and a
                semicolon.
        """
        lines = [line for line in self.blocks[name].splitlines() if line.startswith("|")]
        head, _, *found = ([cell.strip() for cell in line[1:-2].split(" | ")] for line in lines)
        names = [
            f"{title} {head[:place].count(title) + 1}" if title in head[:place] else title
            for place, title in enumerate(head)
        ]
        for above, row in pairwise(found):
            row[0] = row[0] or above[0]
        return [
            dict(zip(names, row, strict=True))
            for row in found
            if all(any(f"{cell};".startswith(f"{word};") for cell in row) for word in words)
        ]

    def row(self, name: str, *words: str) -> dict[str, str]:
        """The first row of some words.

        Raises:
            InputError: There is none.
        """
        for row in self.rows(name, *words):
            return row
        raise InputError(f"the table {name} has no row of {', '.join(words)}.")

    def cell(self, name: str, column: str, *words: str) -> Cell:
        """A cell of the row of some words."""
        return read_cell(self.row(name, *words)[column])


def read_cell(text: str) -> Cell:
    """A cell from its text."""
    number, ends = re.search(_NUMBER, text), _INTERVAL.search(text)
    return Cell(text, number[0] if number else "nan", ends.groups() if ends else ())


def _float(text: str) -> float:
    return float(text.replace(",", ""))
