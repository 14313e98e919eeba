"""What each test's figure shows: one module per test, found by the test's name in snake case.

A module holds `QUESTION` (what the test asks), `SOURCE` (the paper), `MEASURES` (each column in
words, with its unit), `CAPTION` (what the figure shows) and `draw(rows, classes)`. It may also hold
`tables(rows, classes)`, tables of the test's own, and `COLUMNS`, the columns of the record that
the two of them read beside `index`, `position`, `prediction` and `max_attention`; without it they
get all columns but lists of varying length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from attnlight.report.grids import Grid
from attnlight.report.markup import without_controls

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Description:
    """What a reader should know of a test.

    Attributes:
        title: Its name in words.
        question: What it asks.
        source: The paper that it follows.
        measures: Each column in words, with its unit.
        caption: What its figure shows.
    """

    title: str
    question: str = ""
    source: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""


def draw(
    test: str, rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None
) -> Figure | None:
    """Draw a test's figure.

    Args:
        test: The test's name in snake case.
        rows: Columns of its record, (R,) or (R, K), NaN where undefined.
        classes: Names of the classes; None numbers them.

    Returns:
        The figure, or None for a test that has none or a record without rows.
    """
    module = _module(test)
    if module is None or not len(rows["index"]):
        return None
    # Figures know no direction of text: its controls would be drawn as boxes, or turn labels around.
    names = None if classes is None else [without_controls(name) for name in classes]
    figure: Figure | None = module.draw(rows, names)
    return figure


def tables(
    test: str, rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None
) -> list[Grid]:
    """Make a test's own tables.

    Args:
        test: The test's name in snake case.
        rows: Columns of its record, (R,) or (R, K), NaN where undefined.
        classes: Names of the classes; None numbers them.

    Returns:
        The tables; none for a test that has none or a record without rows.
    """
    make = getattr(_module(test), "tables", None)
    if make is None or not len(rows["index"]):
        return []
    return list(make(rows, classes))


def columns(test: str) -> Sequence[str] | None:
    """The columns that a test's figure and tables read; None where its module does not say."""
    named: Sequence[str] | None = getattr(_module(test), "COLUMNS", None)
    return named


def describe(test: str) -> Description:
    """What is known of a test; its name alone where this package does not know it."""
    title = test.replace("_", " ").capitalize()
    module = _module(test)
    if module is None:
        return Description(title)
    return Description(title, module.QUESTION, module.SOURCE, module.MEASURES, module.CAPTION)


def _module(test: str) -> ModuleType | None:
    name = f"{__name__}.{test}"
    if not test.isidentifier() or test.startswith("_") or find_spec(name) is None:
        return None
    return import_module(name)
