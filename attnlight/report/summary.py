"""Means of records with intervals, for the page, CSV and Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.figures.tables import class_name, interval, markdown_table, number, to_csv
from attnlight.records import EXCLUDED, KEY, RecordFile, clustered_pieces, read_pieces
from attnlight.report.run import StoredRecord
from attnlight.statistics.bootstrap import (
    MAX_EXACT_CLUSTERS,
    MeanInterval,
    mean_intervals,
    resampled_sums,
)


@dataclass(frozen=True)
class RecordSummary:
    """The means of one record."""

    record: StoredRecord  # where the record is
    metadata: Mapping[str, Any]  # its metadata; `partial` if it has only some of the instances
    # Means by measure (a column of the record or `accuracy`) and by predicted class; class None,
    # all rows, comes first for each measure.
    means: Mapping[tuple[str, int | None], MeanInterval]


def summarise(record: StoredRecord, by_class: bool = True) -> RecordSummary:
    """Mean and 95 % bootstrap interval of each measure of a record, read in pieces.

    `accuracy` is computed from `prediction` and `label`.
    """
    file = record.file
    metadata, schema = file.metadata, file.schema
    fractions = [f.name for f in schema if pa.types.is_floating(f.type)]
    candidates = metadata.get("measures") or fractions
    # An archived record may lack some measures.
    available = set(schema.names) - {*KEY, "prediction", "label"}
    measures = [name for name in candidates if name in available]
    if "label" in schema.names:
        measures = ["accuracy", *measures]
    groups: list[int | None] = [None]
    if by_class:
        pieces = read_pieces(file, ["prediction"])
        predicted = {int(c) for piece in pieces for c in np.unique(piece["prediction"])}
        groups += sorted(predicted - {EXCLUDED})  # rows that were not measured have no prediction
    keys = [(measure, group) for measure in measures for group in groups]
    in_memory = int(metadata["rows"]) <= MAX_EXACT_CLUSTERS
    columns = _columns(file, schema.names, measures, groups)
    means = mean_intervals(*resampled_sums(columns, len(keys), in_memory=in_memory)) if keys else []
    return RecordSummary(record, metadata, dict(zip(keys, means, strict=True)))


def _columns(
    file: RecordFile,
    available: Sequence[str],
    measures: Sequence[str],
    groups: Sequence[int | None],
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Each measure in each group (R, M G), NaN outside the group, and clusters of rows (R,)."""
    names = [name for name in ("prediction", "label", *measures) if name in available]
    for piece, clusters in clustered_pieces(file, names):
        columns = []
        for measure in measures:
            values = measure_values(piece, measure)
            for group in groups:
                members = True if group is None else piece["prediction"] == group
                columns.append(np.where(members, values, np.nan))
        yield np.stack(columns, axis=1), clusters


def measure_values(piece: Mapping[str, NDArray[Any]], measure: str) -> NDArray[np.float64]:
    """A measure of some rows of a record, (R,): a column or, if there is none, `accuracy`."""
    if measure in piece:
        return piece[measure].astype(np.float64)
    label = piece["label"].astype(np.float64)
    return np.where(label >= 0, piece["prediction"] == label, np.nan)


def to_texts(summaries: Sequence[RecordSummary]) -> dict[str, str]:
    """All means as one table by file suffix: CSV in full precision, and Markdown."""
    full, shown = [], []
    for summary in summaries:
        folder, test = summary.record.folder_name, summary.record.test
        partial = bool(summary.metadata.get("partial"))
        for (measure, predicted), mean in summary.means.items():
            name = class_name(predicted, summary.metadata.get("classes"))
            class_cell = "" if predicted is None else name
            full.append([folder, test, measure, class_cell, *mean, str(partial).lower()])
            cells = [number(mean.mean), interval(mean), f"{mean.defined:,}"]
            shown.append([folder, f"{test}{' (partial)' * partial}", measure, name, *cells])
    head = ["stage", "test", "measure", "predicted_class", "mean", "low", "high", "n", "partial"]
    words = ["split", "test", "measure", "predicted class", "mean", "95 % interval", "n"]
    return {"csv": to_csv(head, full), "md": markdown_table(words, shown, left=4, aligned=True)}
