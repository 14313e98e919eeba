"""The cells of the page's tables, read back by the sentences that rest on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from attnlight.errors import InputError

_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
_INTERVAL = re.compile(rf"\[({_NUMBER}), ({_NUMBER})\]")


class Cell:
    """A figure of a table.

    Attributes:
        text: The whole cell.
        number: Its first number as it is written, `nan` where it has none.
        value: The number.
        ends: Ends of its interval as they are written, empty where it has none.
        low: Lower end of the interval, NaN where it has none.
        high: Upper end.
        above: Whether the whole interval is above 0.
        below: Whether the whole interval is below 0.
        open: Whether the interval holds 0.
        deviation: What stands behind ±, 0 where nothing does.
        count: The last integer: of a cell of seeds, how many trained models they are.
    """

    def __init__(self, text: str) -> None:
        number, interval = re.search(_NUMBER, text), _INTERVAL.search(text)
        deviation, integers = re.search(rf"± ({_NUMBER})", text), re.findall(r"\d+", text)
        self.text, self.number = text, number[0] if number else "nan"
        self.ends: tuple[str, ...] = interval.groups() if interval else ()
        self.value = _float(self.number)
        self.low, self.high = map(_float, self.ends or ("nan", "nan"))
        self.above, self.below = self.low > 0, self.high < 0
        self.open = self.low <= 0 <= self.high
        self.deviation = _float(deviation[1]) if deviation else 0.0
        self.count = int(integers[-1]) if integers else 0

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
        return f"{number} [{', '.join(ends)}]" if ends else number


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
        """A cell of the first row of some words; a column may be named by its beginning."""
        row = self.row(name, *words)
        title = column if column in row else next(x for x in row if x.startswith(column))
        return Cell(row[title])

    def cells(self, name: str, column: str) -> dict[str, Cell]:
        """A column by the first cell of each row, without what follows a semicolon there."""
        first = [next(iter(row.values())) for row in self.rows(name)]
        return {x.partition(";")[0]: self.cell(name, column, x) for x in first}


def _float(text: str) -> float:
    return float(text.replace(",", ""))
