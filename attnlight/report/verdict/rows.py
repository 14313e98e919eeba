"""The lines of a verdict card as rows of few words, with a bar each."""

from __future__ import annotations

from typing import NamedTuple

from attnlight.report.verdict.card import Verdict
from attnlight.report.verdict.estimate import rules
from attnlight.report.verdict.lines import Line, span

_ROWS = ("ranks", "finds", "needed", "words")
_OPEN = "\u2013"  # the sign of a line without an answer because it has no number


class Row(NamedTuple):
    """A line of the card.

    Attributes:
        line: The line.
        sign: Sign of its answer.
        kind: Its answer as a CSS class.
        short: What is asked of attention, a few words that follow "Its attention".
        measures: What the number is.
        number: The number with its interval; "" without one.
        bar: Its value and the ends of its interval, in per cent of the bar from 0 to 1.
        bounds: Bounds of the rule on the same bar.
    """

    line: Line
    sign: str
    kind: str
    short: str
    measures: str
    number: str
    bar: tuple[float, ...]
    bounds: tuple[float, ...]


def rows_of(verdict: Verdict) -> list[Row]:
    """Five rows: the last is of the largest divergence or, where only that is known, smallest sets."""
    lines = {line.name: line for line in verdict.lines}
    last = lines["uniqueness"]
    if last.value is None:
        last = lines.get("smallest_set", last)
    return [_row(line, verdict.items) for line in (*(lines[name] for name in _ROWS), last)]


def _row(line: Line, items: str) -> Row:
    rule, words = rules()[line.name], rules()["rows"][line.name]
    short, measures = (words[part].format(items=items, **rule) for part in ("short", "number"))
    number, bar = "", ()
    if line.value is not None and line.low is not None and line.high is not None:
        number = f"{line.value:.2f} {span((line.low, line.high))}"
        bar = tuple(map(_place, (line.value, line.low, line.high)))
    return Row(
        line,
        rules()["signs"].get(line.answer, _OPEN),
        line.answer.replace(" ", "-") or "open",
        short,
        measures,
        number,
        bar,
        tuple(map(_place, line.bounds)) if bar and line.name != "uniqueness" else (),
    )


def _place(value: float) -> float:
    """Place of a number on a bar from 0 to 1, in per cent; beyond it at its end."""
    return round(100 * min(max(value, 0.0), 1.0), 1)
