"""Figures and tables of each test's record.

`texts.yaml` describes each test by its name in snake case. Most tests have a module of that name:
`draw(rows, classes)` returns the figure, `tables(rows, classes)` the tables, each as its name in the
file, its rows of cells, and the fields of its title and note; a field `head` replaces the headings
of the file. Both also take the metadata of the record that the file names. Besides the columns
named in the file, both read `index`, `position`, `prediction` and `max_attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.data.selection import choose
from attnlight.figures.erasure import WORDS
from attnlight.figures.tables import CONTROLS, Rows, Table
from attnlight.figures.violins import violins_by_max_attention
from attnlight.records import RecordFile, Source, read_pieces, read_record
from attnlight.storage.files import read_yaml

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 1_000_000
_ALWAYS = ("index", "position", "prediction", "max_attention")


@dataclass(frozen=True)
class Description:
    """Texts of a test on the page: the keys of `texts.yaml`, documented there."""

    title: str  # its name in words
    question: str = ""
    source: str = ""
    caption: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)
    # Columns that its figure and tables read, measures included; None: all.
    columns: Sequence[str] | None = None
    # Metadata of its record that they take as arguments, None where it is missing.
    metadata: Sequence[str] = ()
    headlines: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    violins: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def words(self, measure: str) -> str:
        """The description of a measure, by its name or a pattern that it matches; may be empty."""
        keys = (key for key in (measure, *self.measures) if fnmatchcase(measure, key))
        return next(filter(None, map(self.measures.get, keys)), "")


@cache
def descriptions() -> dict[str, Description]:
    """The description of each test, by its name in snake case."""
    by_test = {}
    for test, texts in read_yaml(Path(__file__).with_name("texts.yaml")).items():
        measures = texts.setdefault("measures", {})
        for measure, words in texts.pop("by_ranking", {}).items():
            measures |= {
                f"{measure}_{name}": f"{words}; by {label}" for name, label in WORDS.items()
            }
        columns = texts.get("columns", ())
        texts["columns"] = None if columns is None else [*measures, *columns]
        by_test[test] = Description(test.replace("_", " ").capitalize(), **texts)
    return by_test


def describe(test: str) -> Description:
    """The description of a test, of an unknown one its title; title and question have its label."""
    name, _, label = test.partition("-")
    found = descriptions().get(name) or Description(name.replace("_", " ").capitalize())
    if not label:
        return found
    said, asked = label.replace("_", " "), found.question
    return replace(found, title=f"{found.title}: {said}", question=asked and f"{asked} ({said})")


def draw(
    test: str,
    rows: Rows,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> Figure | None:
    """Draw a test's figure without empty axes; None if it has none, or nothing is defined.

    Args:
        test: The test's name in snake case.
        rows: Columns of its record, (R,) or (R, K), NaN where undefined.
        classes: Names of the classes; None: their numbers.
        metadata: Metadata of its record.
    """
    description, test = describe(test), test.partition("-")[0]
    measured = [x for name, x in rows.items() if x.dtype.kind == "f" and description.words(name)]
    if test not in descriptions() or not len(rows["index"]):
        return None
    if measured and not any(np.isfinite(values).any() for values in measured):
        return None
    # Matplotlib would draw direction controls as boxes or reverse labels.
    names = None if classes is None else [CONTROLS.sub("", name) for name in classes]
    if description.violins:
        return violins_by_max_attention(rows, **description.violins, classes=names)
    taken = {name: metadata.get(name) for name in description.metadata}
    figure: Figure | None = import_module(f"{__name__}.{test}").draw(rows, names, **taken)
    for axes in figure.axes if figure is not None else ():
        if not np.isfinite(axes.dataLim.get_points()).all():
            axes.remove()
    return figure


def tables(
    test: str,
    rows: Rows,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> list[Table]:
    """A test's tables, from the arguments of `draw`; empty without rows or tables."""
    description, formatted = describe(test), []
    layouts, taken = description.tables, {name: metadata.get(name) for name in description.metadata}
    if layouts and len(rows["index"]):
        module = import_module(f"{__name__}.{test.partition('-')[0]}")
        for name, lines, fields in module.tables(rows, classes, **taken):
            title, note = (layouts[name][part].format(**fields) for part in ("title", "note"))
            formatted.append(Table(title, fields.get("head") or layouts[name]["head"], lines, note))
    return formatted


def figure_rows(
    source: Source, columns: Sequence[str] | None = None
) -> tuple[dict[str, NDArray[Any]], str]:
    """Measured rows of a record; rows with non-finite logits are left out.

    From a record with more than about a million rows a sample of texts is read, chosen by a hash.

    Args:
        source: The record.
        columns: Columns to read besides `index`, `position`, `prediction` and `max_attention`,
            if the record has them, or patterns of their names such as `auprc_*`; None: all except
            lists of varying length.

    Returns:
        Columns (R,) or (R, K), and sentences for the caption if only a sample was read or measured.
    """
    record = RecordFile.of(source)
    available = record.columns
    requested = [n for n, ragged in available.items() if not ragged]
    if columns is not None:
        requested = [name for key in columns for name in matching(available, key)]
    names = [name for name in dict.fromkeys([*_ALWAYS, *requested]) if name in available]
    rows, texts = int(record.metadata["rows"]), None
    if rows > MAX_ROWS:
        all_texts = np.unique(read_record(record, ["index"]).columns["index"])
        texts = choose(all_texts, max(1, int(MAX_ROWS / rows * len(all_texts))), seed=0)
    pieces = list(read_pieces(record, names, measured="prediction" in available, texts=texts))
    selected = {n: np.concatenate([piece[n] for piece in pieces] or [np.empty(0)]) for n in names}
    notes = [f"Shows {len(selected['index']):,} of {rows:,} rows, those of texts chosen by a hash."]
    notes = [] if texts is None else notes
    if positions := record.metadata.get("positions"):
        notes.append(
            f"Of each text at most {positions} words were deleted, the first ones of each ranking and a "
            "seeded sample of the others; pairs of words count by the inverse of their inclusion probability."
        )
    if record.metadata.get("level") == "words":
        notes.append("Items are the words inside sentences.")
    if (target := record.metadata.get("gradient_of")) is not None:
        shown = "runner-up" if target == "runner_up" else f"class {target}"
        notes.append(f"Gradients are of the probability of the {shown}.")
    return selected, " ".join(notes)
