"""Means of records with their intervals: for the page, the terminal, CSV and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.records import EXCLUDED, read_metadata, read_pieces
from attnlight.report.run import StoredRecord, stored_records
from attnlight.report.tables import class_name, interval, markdown, number

if TYPE_CHECKING:
    import rich.table

Rows = Mapping[str, NDArray[Any]]
_NO_MEASURES = ("index", "position", "prediction", "label")


@dataclass(frozen=True)
class Line:
    """The mean of one measure with its interval.

    Attributes:
        measure: Column of the record, or `accuracy`, which follows from its labels.
        predicted: Class that the rows were predicted as; None: all rows.
        mean: Mean of the defined values, NaN where there is none.
        low: Lower end of the 95 % interval.
        high: Upper end.
        defined: How many values the mean is over.
    """

    measure: str
    predicted: int | None
    mean: float
    low: float
    high: float
    defined: int


@dataclass(frozen=True)
class RecordSummary:
    """The lines of one record.

    Attributes:
        record: Where the record is.
        metadata: What it says of itself.
        lines: For each measure all rows first, then each predicted class.
    """

    record: StoredRecord
    metadata: Mapping[str, Any]
    lines: Sequence[Line]

    @property
    def rows(self) -> int:
        """Instances in the record."""
        return int(self.metadata["rows"])

    @property
    def partial(self) -> bool:
        """Whether the record holds only some of the instances."""
        return bool(self.metadata.get("partial"))

    @property
    def non_finite(self) -> int:
        """Instances that were not measured, for their logits or attention are not finite."""
        return int(self.metadata.get("non_finite", 0))

    @property
    def classes(self) -> list[str]:
        """Names of the classes, empty where the record does not say."""
        return list(self.metadata.get("classes") or [])

    @property
    def predicted(self) -> list[int]:
        """Classes that some row was predicted as."""
        return sorted({line.predicted for line in self.lines if line.predicted is not None})

    @property
    def by_measure(self) -> dict[str, dict[int | None, Line]]:
        """The lines by measure and predicted class."""
        found: dict[str, dict[int | None, Line]] = {}
        for line in self.lines:
            found.setdefault(line.measure, {})[line.predicted] = line
        return found

    def class_name(self, predicted: int | None) -> str:
        """What a class is called, its number where the record has no name; None: `all`."""
        return "all" if predicted is None else class_name(predicted, self.classes)


def summary(rows: Rows, measures: Sequence[str], by_class: bool = True) -> list[Line]:
    """Mean and 95 % bootstrap interval of each measure.

    Args:
        rows: Columns of a record, in ascending order of `index`.
        measures: The columns to average; `accuracy` is taken from `prediction` and `label`.
        by_class: Also split by predicted class.
    """
    classes = _predicted([rows]) if by_class else []
    return _lines([rows], measures, classes, len(rows["index"]))


def summarise(record: StoredRecord, by_class: bool = True) -> RecordSummary:
    """Summarise a record on disk, in pieces of bounded size.

    Raises:
        RecordError: The file is no readable record.
    """
    metadata = read_metadata(record.path)
    measures, needed = _columns(record.path, metadata)
    classes = _predicted(read_pieces(record.path, ["prediction"])) if by_class else []
    pieces = read_pieces(record.path, needed)
    lines = _lines(pieces, measures, classes, int(metadata["rows"])) if measures else []
    return RecordSummary(record, metadata, lines)


def _columns(path: Path, metadata: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The measures of a record, and the columns to read for them."""
    schema = pq.read_schema(path)
    floats = [f.name for f in schema if pa.types.is_floating(f.type)]
    named = [m for m in metadata.get("measures") or floats if m not in _NO_MEASURES]
    measures = [m for m in named if m in schema.names]  # of a record that was kept in part
    needed = ["index", "prediction", *measures]
    if "label" in schema.names:
        return ["accuracy", *measures], [*needed, "label"]
    return measures, needed


def _predicted(pieces: Iterable[Rows]) -> list[int]:
    """Classes that some row was predicted as; rows that were not measured have none."""
    found = {int(c) for piece in pieces for c in np.unique(piece["prediction"])}
    return sorted(found - {EXCLUDED})


def _lines(
    pieces: Iterable[Rows], measures: Sequence[str], classes: Sequence[int], rows: int
) -> list[Line]:
    from attnlight.statistics.bootstrap import IN_MEMORY, bootstrap_pieces

    keys = [(measure, group) for measure in measures for group in (None, *classes)]
    columns = _columns_by_class(pieces, measures, classes)
    intervals = bootstrap_pieces(columns, len(keys), in_memory=rows <= IN_MEMORY)
    return [
        Line(measure, group, *found)
        for (measure, group), found in zip(keys, intervals, strict=True)
    ]


def _columns_by_class(
    pieces: Iterable[Rows], measures: Sequence[str], classes: Sequence[int]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Each measure (R, M (1 + C)): all rows, then those of each class with NaN elsewhere."""
    for piece in pieces:
        members = [piece["prediction"] == c for c in classes]
        columns = []
        for measure in measures:
            if measure == "accuracy" and measure not in piece:
                label = piece["label"].astype(np.float64)
                values = np.where(label >= 0, piece["prediction"] == label, np.nan)
            else:
                values = piece[measure].astype(np.float64)
            columns += [values, *(np.where(member, values, np.nan) for member in members)]
        yield np.stack(columns, axis=1), piece["index"]


def to_csv(summaries: Sequence[RecordSummary]) -> str:
    """All lines as CSV, numbers in full."""
    import pandas as pd

    head = ["stage", "test", "measure", "predicted_class", "mean", "low", "high", "n", "partial"]
    rows = [
        [
            *(part.record.place, part.record.test, line.measure),
            "" if line.predicted is None else part.class_name(line.predicted),
            *(line.mean, line.low, line.high, line.defined, str(part.partial).lower()),
        ]
        for part in summaries
        for line in part.lines
    ]
    return str(pd.DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n"))


def to_markdown(summaries: Sequence[RecordSummary]) -> str:
    """All lines as a Markdown table."""
    import pandas as pd

    head = ["split", "test", "measure", "predicted class", "mean", "95 % interval", "n"]
    rows = [
        [
            part.record.place,
            part.record.test + (" (partial)" if part.partial else ""),
            *(line.measure, part.class_name(line.predicted)),
            *(number(line.mean), interval(line), f"{line.defined:,}"),
        ]
        for part in summaries
        for line in part.lines
    ]
    return markdown(pd.DataFrame(rows, columns=head, dtype=object), left=4)


def terminal_table(records_dir: Path, corpus: str = "") -> rich.table.Table:
    """The measures of every test record of a run, for the terminal.

    A test's name stands on a line of its own above its measures, so that a measure and its numbers
    share 80 columns. Where there are fewer, names go on in the next line; none is cut.

    Args:
        records_dir: The run's `records` folder.
        corpus: Name of the corpus where it is another one than the model was trained on.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("measure", overflow="fold")
    for heading in ("mean", "95 % interval", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for record in stored_records(records_dir):
        if (record.stage, record.corpus, record.epoch) != ("test", corpus, None):
            continue
        part = summarise(record, by_class=False)
        partial = " (partial)" if part.partial else ""
        table.add_row(f"[bold]{escape(record.test)}[/bold]{partial}")
        for line in part.lines:
            shown = [number(line.mean), interval(line), f"{line.defined:,}"]
            table.add_row(f" {escape(line.measure)}", *shown)
        table.add_section()
    return table
