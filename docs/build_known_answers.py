"""Build docs/known_answers.md: every test on models whose answer is known.

    python docs/build_known_answers.py            run the tests and write the tables into the page
    python docs/build_known_answers.py --check    run the tests; fail where the page differs

The prose of the page is its own; what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`
is written here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from build_results import fill
from known_answers_page.measuring import Measured, measure_all
from known_answers_page.models import MODELS
from results_page.tables import DASH, table

from attnlight.files import write_text
from attnlight.report.figures import describe
from attnlight.report.summary import Line

PAGE = Path(__file__).parent / "known_answers.md"
_NUMBER = re.compile(r"-?\d+\.\d{4}")
_ROUNDING = 5e-4


def measures_table(found: Sequence[Measured]) -> str:
    """Mean and interval of each measure on each model, and whether it tells F from D."""
    rows = []
    for place, row in enumerate(found):
        first = place == 0 or found[place - 1].test != row.test
        title = describe(row.test).title if first else ""
        cells = [_cell(row.lines[known.name]) for known in MODELS]
        told = "yes" if row.separates else "**no**"
        rows.append([title, f"`{row.measure}`", *cells, _number(row.effect), told])
    head = ["test", "measure", *(known.name for known in MODELS), "AUROC", "tells F from D"]
    return table(head, rows, words=2)


def verdict(found: Sequence[Measured]) -> str:
    """Which measures tell F from D and which do not, test by test."""
    lines = []
    for test in dict.fromkeys(row.test for row in found):
        mine = [row for row in found if row.test == test]
        told = [f"`{row.measure}`" for row in mine if row.separates]
        missed = [f"`{row.measure}`" for row in mine if not row.separates]
        words = "; ".join(
            f"{label}: {', '.join(names)}"
            for label, names in (
                ("tells F from D by", told),
                ("does not tell them apart by", missed),
            )
            if names
        )
        lines.append(f"* **{describe(test).title}** {words}.\n")
    return "".join(lines)


def _cell(line: Line) -> str:
    if not line.defined:
        return DASH
    return f"{_number(line.mean)} [{_number(line.low)}, {_number(line.high)}]"


def _number(value: float) -> str:
    return DASH if np.isnan(value) else f"{value + 0.0:.4f}".replace("-0.0000", "0.0000")


def agree(page: str, other: str) -> bool:
    """Whether two pages differ in nothing but the rounding of another processor."""
    if _NUMBER.sub("", page) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(other), strict=True)
    return all(abs(float(left) - float(right)) <= _ROUNDING for left, right in pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 where it differs from what the tests say."""
    parser = argparse.ArgumentParser(description="Build docs/known_answers.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args(argv)
    found = measure_all()
    page = PAGE.read_text(encoding="utf-8")
    wanted = fill(page, {"measures": measures_table(found), "verdict": verdict(found)})
    if not arguments.check:
        write_text(PAGE, wanted)
    elif not agree(page, wanted):
        print(f"{PAGE.name} differs from what the tests say; build it again.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
