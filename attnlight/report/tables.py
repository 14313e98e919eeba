"""Means with their intervals, from records to the page, the terminal, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.records import EXCLUDED, read_metadata, read_pieces
from attnlight.report.grids import markdown_table
from attnlight.report.runs import StoredRecord, stored_records

if TYPE_CHECKING:
    from rich.table import Table

    from attnlight.statistics.bootstrap import MeanInterval

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

    def class_name(self, predicted: int) -> str:
        """What a class is called, its number where the record has no name."""
        return class_name(predicted, self.classes)


def class_name(predicted: int, classes: Sequence[str]) -> str:
    """What a class is called, its number where there is no name."""
    return classes[predicted] if predicted < len(classes) else f"class {predicted}"


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

    groups: list[int | None] = [None, *classes]
    intervals = bootstrap_pieces(
        _columns_by_class(pieces, measures, classes),
        len(measures) * len(groups),
        in_memory=rows <= IN_MEMORY,
    )
    keys = [(measure, group) for measure in measures for group in groups]
    return [
        Line(measure, group, found.mean, found.low, found.high, found.defined)
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
            values = _values(piece, measure)
            columns += [values, *(np.where(member, values, np.nan) for member in members)]
        yield np.stack(columns, axis=1), piece["index"]


def _values(piece: Rows, measure: str) -> NDArray[np.float64]:
    if measure == "accuracy" and measure not in piece:
        label = piece["label"].astype(np.float64)
        return np.where(label >= 0, piece["prediction"] == label, np.nan)
    return piece[measure].astype(np.float64)


def number(value: float) -> str:
    """Three decimals, or three digits where those would all be zero; a dash where undefined."""
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    if not np.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2e}"


def interval(found: Line | MeanInterval) -> str:
    """The interval as `[low, high]`."""
    return f"[{number(found.low)}, {number(found.high)}]"


def estimate(found: Line | MeanInterval) -> str:
    """Mean and interval as `mean [low, high]`; a dash where there is none."""
    return number(found.mean) if np.isnan(found.mean) else f"{number(found.mean)} {interval(found)}"


def to_csv(summaries: Sequence[RecordSummary]) -> str:
    """All lines as CSV, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["stage", "test", "measure", "predicted_class", "mean", "low", "high", "n", "partial"]
    )
    for part in summaries:
        for line in part.lines:
            group = "" if line.predicted is None else part.class_name(line.predicted)
            ends = [line.mean, line.low, line.high]
            found = ["" if np.isnan(x) else repr(x) for x in ends]
            where = [part.record.place, part.record.test]
            writer.writerow(
                [*where, line.measure, group, *found, line.defined, str(part.partial).lower()]
            )
    return text.getvalue()


def to_markdown(summaries: Sequence[RecordSummary]) -> str:
    """All lines as a Markdown table."""
    head = ["split", "test", "measure", "predicted class", "mean", "95 % interval", "n"]
    body = [
        [
            part.record.place,
            part.record.test + (" (partial)" if part.partial else ""),
            line.measure,
            "all" if line.predicted is None else part.class_name(line.predicted),
            number(line.mean),
            interval(line),
            f"{line.defined:,}",
        ]
        for part in summaries
        for line in part.lines
    ]
    return markdown_table(head, body, left=4)


def terminal_table(records_dir: Path, corpus: str = "") -> Table:
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
