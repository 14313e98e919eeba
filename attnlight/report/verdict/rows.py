"""The lines of a verdict card as rows of few words, with a bar each."""

from collections.abc import Sequence
from typing import NamedTuple

from attnlight.report.verdict.estimate import rules
from attnlight.report.verdict.lines import BOUNDS, Line, span

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


def rows_of(card: Sequence[Line], items: str) -> list[Row]:
    """Five rows: the last is of the largest divergence or, where only that is known, smallest sets.

    Where items of a context were left out, the row of that comes first.

    Args:
        card: All lines of the card.
        items: What items are called.
    """
    lines = {line.name: line for line in card}
    last = lines["uniqueness"]
    if last.value is None:
        last = lines.get("smallest_set", last)
    first, rows = [lines["cites"]] if "cites" in lines else [], []
    for line in (*first, *(lines[name] for name in _ROWS), last):
        rule = rules()[line.name]  # whose bounds may be others for this kind of model
        rule = rule | dict(zip(filter(rule.__contains__, BOUNDS), line.bounds, strict=False))
        words = {
            name: text.format(items=items, **rule)
            for name, text in rules()["rows"][line.name].items()
        }
        number, bar = "", tuple[float, ...]()
        if line.value is not None and line.low is not None and line.high is not None:
            number = f"{line.value:z.2f} {span((line.low, line.high))}"
            bar = tuple(map(_place, (line.value, line.low, line.high)))
        row = Row(
            line,
            rules()["signs"].get(line.answer, _OPEN),
            line.answer.replace(" ", "-") or "open",
            words["short"],
            words["number"],
            number,
            bar,
            tuple(map(_place, line.bounds)) if bar and line.name != "uniqueness" else (),
        )
        rows.append(row)
    return rows


def _place(value: float) -> float:
    """Place of a number on a bar from 0 to 1, in per cent; beyond it at its end."""
    return round(100 * min(max(value, 0.0), 1.0), 1)
