"""Read a record at once or in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnlight.errors import one_line
from attnlight.records.format import (
    EXCLUDED,
    FORMAT,
    KEY,
    METADATA,
    METADATA_TYPES,
    PIECE_ROWS,
    Record,
    RecordError,
)
from attnlight.records.parquet import open_parquet


def read_record(path: Path, columns: Sequence[str] | None = None) -> Record:
    """Read a record at once.

    Args:
        path: A parquet file that `merge_shards` wrote.
        columns: The columns to read; None: all.

    Raises:
        RecordError: The file is missing or is not a record.
    """
    metadata = read_metadata(path)
    with open_parquet(path) as file:
        table = file.read(columns=None if columns is None else list(columns))
        return Record({name: _column(table.column(name)) for name in table.column_names}, metadata)


def read_pieces(
    path: Path,
    columns: Sequence[str],
    *,
    measured: bool = False,
    texts: NDArray[np.int64] | None = None,
) -> Iterator[dict[str, NDArray[Any]]]:
    """Read some columns of a record in pieces of bounded size, in key order.

    Args:
        path: A parquet file that `merge_shards` wrote.
        columns: The columns to read.
        measured: Leave out rows that were not measured; `prediction` must be among the columns.
        texts: Only rows of these dataset indices; `index` must be among the columns. None: all.

    Raises:
        RecordError: The file is missing, is not a record or lacks a column.
    """
    read_metadata(path)  # raises where the file is not a record
    with open_parquet(path) as file:
        lacking = [name for name in columns if name not in file.schema_arrow.names]
        if lacking:
            raise RecordError(
                f"{path} has no column {lacking[0]}: it is another test's record or a partial one."
            )
        for batch in file.iter_batches(batch_size=PIECE_ROWS, columns=list(columns)):
            if measured:
                batch = batch.filter(pc.not_equal(batch.column("prediction"), EXCLUDED))
            if texts is not None:
                batch = batch.filter(pc.is_in(batch.column("index"), pa.array(texts)))
            yield {name: _column(pa.chunked_array([batch.column(name)])) for name in columns}


def clustered_pieces(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[dict[str, NDArray[Any]], NDArray[np.int64]]]:
    """Pieces as of `read_pieces`, and the cluster of each row (R,), in ascending order.

    Intervals resample clusters. They are the dataset indices, unless the metadata name a column as
    `clusters`: then the record is one piece, without the rows that have no cluster because they were
    not measured.

    Raises:
        RecordError: As `read_pieces`.
    """
    column = read_metadata(path).get("clusters")
    if column not in record_columns(path):
        for piece in read_pieces(path, [KEY[0], *columns]):
            yield piece, piece[KEY[0]]
        return
    record = read_record(path, [column, *columns]).columns
    order = record[column].argsort(kind="stable")
    order = order[~np.isnan(record[column][order])]
    yield (
        {name: values[order] for name, values in record.items()},
        record[column][order].astype(np.int64),
    )


def record_columns(path: Path) -> dict[str, bool]:
    """Names of a record's columns, and whether their values are lists of varying length."""
    with open_parquet(path) as file:
        return {
            field.name: bool(pa.types.is_list(field.type) or pa.types.is_large_list(field.type))
            for field in file.schema_arrow
        }


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a record.

    Raises:
        RecordError: The file is missing or is not a record.
    """
    with open_parquet(path) as file:
        text = (file.schema_arrow.metadata or {}).get(METADATA)
    if text is None:
        raise RecordError(f"{path} is a parquet file but not an attnlight record.")
    try:
        metadata: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not a readable record: {one_line(error)}.") from error
    if not isinstance(metadata, dict):
        raise RecordError(f"{path} is not a readable record: its metadata are not a mapping.")
    if metadata.get("format") != FORMAT:
        raise RecordError(
            f"{path} is a record of format {metadata.get('format')}; this version of attnlight "
            f"reads format {FORMAT}."
        )
    for name, value in metadata.items():
        names = value if name in ("classes", "measures") else ()
        if not (isinstance(value, METADATA_TYPES.get(name, object)) and _is_text(names)):
            raise RecordError(f"{path} is not a readable record: its {name} is {value!r}.")
    return metadata


def _is_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _column(column: pa.ChunkedArray) -> NDArray[Any]:
    """Values (R,), or (R, K) for lists of fixed length K; a null list is a row of NaN."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not pa.types.is_fixed_size_list(kind):
        nullable = pa.types.is_boolean(kind) and column.null_count
        return np.asarray((column.cast(pa.int8()) if nullable else column).to_numpy())
    flat = _column(pa.chunked_array([c.flatten() for c in column.chunks], kind.value_type))
    values = flat.reshape(len(column) - column.null_count, kind.list_size)
    if not column.null_count:
        return values
    filled = np.full((len(column), kind.list_size), np.nan, np.result_type(values, np.float32))
    filled[~np.asarray(column.is_null())] = values
    return filled
