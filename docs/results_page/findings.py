"""The findings of the pages: the sentences of `findings.md` that the tables support."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from attnlight.errors import InputError
from results_page import NAMES

_TEXTS = Path(__file__).with_name("findings.md")
_REFUSED = re.compile(r"<!--\s+refused:\s+(.*?)\s+-->", re.DOTALL)  # may be wrapped
NO_INTERVAL = "(no interval)"  # of a difference with a side of two seeds
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
_WRAPPED: dict[str, Any] = {"width": 119, "break_long_words": False, "break_on_hyphens": False}


class Cell:
    """A parsed cell of a table.

    Attributes:
        number: The first number of the cell as written, `nan` if it has none.
        ends: Ends of its interval as written, `nan` if it has none.
        by_seed: The values of two seeds as written, which stand in place of an interval; else empty.
        value, low, high: The number and the ends as floats.
        above, below, open: Whether the interval is above 0, below 0, or contains 0.
        deviation: The number after ±, 0 if there is none.
        counts: All integers.
    """

    def __init__(self, text: str) -> None:
        interval = re.search(rf"\[({_NUMBER}), ({_NUMBER})\]", text)
        values = re.search(rf"\(({_NUMBER}), ({_NUMBER}) by seed\)", text)
        deviation = re.search(rf"± ({_NUMBER})", text)
        self.number = next(iter(re.findall(_NUMBER, text)), "nan")
        self.ends = interval.groups() if interval else ("nan", "nan")
        self.by_seed = values.groups() if values else ()
        self.lacking = NO_INTERVAL if NO_INTERVAL in text else ""
        written = (self.number, *self.ends)
        self.value, self.low, self.high = (float(x.replace(",", "")) for x in written)
        self.above, self.below = self.low > 0, self.high < 0
        self.open = self.low <= 0 <= self.high
        self.deviation = float(deviation[1]) if deviation else 0.0
        self.counts = [*map(int, re.findall(r"\d+", text))]

    def __str__(self) -> str:
        ends = "" if "nan" in self.ends else f"[{', '.join(self.ends)}]"
        values = f"({', '.join(self.by_seed)} by seed)" if self.by_seed else self.lacking
        return f"{self.number} {ends or values}".strip()

    @property
    def range(self) -> tuple[float, float]:
        """Where the figure lies: its interval, from seed to seed of two, anywhere, or at its value."""
        if self.lacking:
            return -math.inf, math.inf
        low, high = sorted(map(float, self.by_seed)) or (self.low, self.high)
        return (self.value, self.value) if math.isnan(low) else (low, high)

    @property
    def size(self) -> str:
        """The number with its interval, without the sign of the number."""
        if self.value >= 0:
            return str(self)
        turned = re.sub(
            _NUMBER, lambda x: x[0].lstrip("-") if float(x[0]) <= 0 else f"-{x[0]}", str(self)
        )
        return re.sub(r"\[(.+), (.+)\]", r"[\2, \1]", turned)


class Tables(dict[str, str]):
    """The content of each place of the page, by its name, with access by row and column."""

    def rows(self, name: str, *words: str) -> list[dict[str, str]]:
        """The rows of a table by column; the second column of a name is `NAME 2`.

        An empty first cell is filled from the row above.

        Args:
            name: The table.
            words: Select rows in which, for each word, a cell equals it or begins with it and a
                semicolon; of a word that ends in `…` a cell begins with what precedes this.

        Raises:
            InputError: No row has these words.
        """
        lines = [line for line in self[name].splitlines() if line.startswith("|")]
        head, _, *body = ([cell.strip() for cell in line[1:-2].split(" | ")] for line in lines)
        counts = (head[: place + 1].count(title) for place, title in enumerate(head))
        names = [f"{x} {n}" if n > 1 else x for x, n in zip(head, counts, strict=True)]
        for above, row in pairwise(body):
            row[0] = row[0] or above[0]
        starts = [x[:-1] if x.endswith("…") else f"{x};" for x in words]
        rows = [
            dict(zip(names, row, strict=True))
            for row in body
            if all(any(f"{cell};".startswith(start) for cell in row) for start in starts)
        ]
        if words and not rows:
            raise InputError(f"the table {name} has no row of {', '.join(words)}.")
        return rows

    def figures(self, name: str, column: str, *words: str) -> list[Cell]:
        """The cells of a column in the rows selected by `words`; `column` may be a prefix."""
        rows = self.rows(name, *words)
        title = column if column in rows[0] else next(x for x in rows[0] if x.startswith(column))
        return [Cell(row[title]) for row in rows]

    def cell(self, name: str, column: str, *words: str) -> Cell:
        """The first of `figures`."""
        return self.figures(name, column, *words)[0]

    def cells(self, name: str, column: str) -> dict[str, Cell]:
        """A column by the first cell of each row up to a semicolon."""
        first = [next(iter(row.values())) for row in self.rows(name)]
        return {x.partition(";")[0]: self.cell(name, column, x) for x in first}

    def answer(self, study: str) -> str:
        """The answer of a study's first verdict on attention, or that there are too few seeds."""
        match = re.match(r"\* \*\*.*?\?\*\* ([^:.]*)", self[f"{study}_verdict"])
        answers = NAMES["findings"]["answers"]
        return str(answers.get(match[1] if match else "", "without enough seeds to say"))

    def needed(self) -> str:
        """On which corpora of classification attention is needed."""
        by_answer: dict[str, list[str]] = {}
        for study, words in NAMES["findings"]["studies"].items():
            by_answer.setdefault(self.answer(study), []).append(words)
        needed = "; ".join(
            f"{answer} on {' and '.join(filter(None, [', '.join(most), last]))}"
            for answer, (*most, last) in by_answer.items()
        )
        return f"Over the studies of classification attention is {needed}."


class Sentence(NamedTuple):
    """A sentence of a place: its key, and its text, or a mark that fails the check."""

    place: str
    key: str
    text: str


class Cells(dict[str, list[Cell]]):
    """The cells that `findings.md` names for the sentences of a place.

    An item has the cells of all rows, an attribute that of the first.
    """

    def __init__(self, tables: Tables, place: str) -> None:
        content = _TEXTS.read_text("utf-8").partition(f"\n## {place}\n")[2].partition("\n## ")[0]
        self.place = place
        self.texts = dict(re.findall(r"^(\w+): ((?:\S.*\n?)+)", content, re.MULTILINE))
        for row in Tables({place: content}).rows(place) if "| cell |" in content else ():
            words = filter(None, row["row"].split("; "))
            self[row["cell"]] = tables.figures(row["table"], row["column"], *words)

    def __getattr__(self, name: str) -> Cell:
        return self[name][0]

    def say(self, key: str, holds: bool = True, /, **fields: object) -> Sentence:
        """A sentence, whether the tables support it, and what it shows beside the cells.

        A cell is shown by its name; of several rows all cells are a list.
        """
        cells = {name: found[0] if len(found) == 1 else found for name, found in self.items()}
        text = " ".join(self.texts[key].split()).format(**{**cells, **fields})
        text = " ".join(text.split())  # a field may be empty
        return Sentence(self.place, key, text if holds else f"<!-- refused: {text} -->")


Sentences = Iterator[Sentence]
Places = tuple[Callable[[Tables], Sentences], ...]


def findings(blocks: Mapping[str, str], places: Places) -> dict[str, str]:
    """The sentences of each place: a paragraph, or a list where its name ends in `s`.

    Args:
        blocks: The tables and the studies' verdicts, by the name of their place.
        places: The functions of their sentences.
    """
    known = re.findall(r"^## (\w+)$", _TEXTS.read_text("utf-8"), re.MULTILINE)
    found: dict[str, list[str]] = {x: [] for x in known if x != "reasons"}  # these are in tables
    for place, _, text in (said for of in places for said in of(Tables(blocks))):
        items = found[place]
        begins = re.match(r"(<!-- refused: )?\*\*", text)
        items += [""] * bool(begins or place.endswith("findings") or not items)
        items[-1] = f"{items[-1]} {text}".strip()
    paragraphs = {}
    for place, items in found.items():
        mark = "* " if place.endswith("s") else ""
        lines = (
            textwrap.fill(mark + x, subsequent_indent=" " * len(mark), **_WRAPPED) for x in items
        )
        paragraphs[place] = "".join(f"{line}\n" for line in lines)
    return paragraphs


def refused(page: str) -> list[str]:
    """The sentences of a page that its records do not support."""
    return [" ".join(sentence.split()) for sentence in _REFUSED.findall(page)]
