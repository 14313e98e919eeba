"""What is spoken on disk: one row per instance, one parquet file per test.

While a test runs, each rank appends its rows to a shard of its own; at the end of the epoch rank 0
merges the shards into one file sorted by key, through a memory map and in pieces, so that memory
does not grow with the corpus. Callbacks write, the report reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.files import named_errors, replacing

FORMAT = 1
KEY = ("index", "position")
EXCLUDED = -1  # the prediction of a row that was not measured
_SHARD_ROWS = 8_192
_PIECE_ROWS = 32_768
_METADATA = b"attnlight"

Columns = Mapping[str, "NDArray[Any] | pa.Array"]


class RecordError(InputError):
    """A record that lacks a row, holds one twice, or is no record at all."""


@dataclass(frozen=True)
class Record:
    """One test's rows.

    Attributes:
        columns: Each column, (R,) or (R, K), or (R,) of objects where it holds text or lists of
            varying length; what is null on disk is NaN here, and None among objects.
        metadata: `test`, `stage`, `epoch`, `checkpoint`, `partial`, `rows` and the like.
    """

    columns: dict[str, NDArray[Any]]
    metadata: dict[str, Any]


class ShardWriter:
    """Append rows to one rank's shard.

    Args:
        path: The shard; an older one is replaced.

    Raises:
        InputError: The disk is full or the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._excluded: list[tuple[NDArray[np.int64], Sequence[str]]] = []
        self._schema: pa.Schema | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, rows: NDArray[np.int64], columns: Columns) -> None:
        """Append R rows.

        Args:
            rows: Keys (R, 2): dataset index and position.
            columns: Columns of R values, (R,) or (R, K), or Arrow arrays of length R.

        Raises:
            RecordError: A column's shape or type is none that a record takes, or another than in
                the rows before.
        """
        arrays = {
            "index": pa.array(np.ascontiguousarray(rows[:, 0]), pa.int64()),
            "position": pa.array(np.ascontiguousarray(rows[:, 1]).astype(np.int32)),
        }
        arrays |= {name: _to_arrow(name, values, len(rows)) for name, values in columns.items()}
        self._append(pa.record_batch(arrays))

    def exclude(self, rows: NDArray[np.int64], columns: Sequence[str] = ()) -> None:
        """Append R rows that were not measured: `prediction` is -1, all other columns are null.

        Args:
            rows: Keys (R, 2).
            columns: What to hold nulls where no row of the shard is measured.
        """
        self._excluded.append((rows, columns))

    def close(self) -> None:
        """Write what is pending and complete the shard."""
        for rows, columns in self._excluded:
            self._append(_unmeasured(rows, self._schema or _without_values(columns)))
        self._excluded = []
        self._flush()
        if self._writer is not None:
            with named_errors(self.path):
                self._writer.close()
            self._writer = None

    def _append(self, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            self._schema = batch.schema
        elif batch.schema != self._schema:
            raise RecordError(_change(self._schema, batch.schema))
        self._pending.append(batch)
        self._pending_rows += len(batch)
        if self._pending_rows >= _SHARD_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        with named_errors(self.path):
            table = pa.Table.from_batches(self._pending).combine_chunks()
            if self._writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pa.ipc.new_file(str(self.path), table.schema)
            self._writer.write_table(table)
        self._pending, self._pending_rows = [], 0


def _without_values(columns: Sequence[str]) -> pa.Schema:
    known = {"index": pa.int64(), "position": pa.int32(), "prediction": pa.int64()}
    return pa.schema(known | {name: pa.null() for name in columns if name not in known})


def _unmeasured(rows: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
    given = {
        "index": rows[:, 0],
        "position": rows[:, 1],
        "prediction": np.full(len(rows), EXCLUDED),
    }
    arrays = [
        pa.array(given[field.name], field.type)
        if field.name in given
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _change(before: pa.Schema, after: pa.Schema) -> str:
    if before.names != after.names:
        changed = sorted(set(before.names) ^ set(after.names)) or after.names
        return f"column {changed[0]} is not in every batch."
    name = next(n for n in before.names if before.field(n).type != after.field(n).type)
    return (
        f"column {name} is of type {before.field(name).type} in one batch and "
        f"{after.field(name).type} in another; values of varying length go into lists."
    )


def _to_arrow(name: str, values: NDArray[Any] | pa.Array, rows: int) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        array = values
    elif values.ndim == 1:
        array = _nullable(values)
    elif values.ndim == 2:
        array = pa.FixedSizeListArray.from_arrays(_nullable(values.reshape(-1)), values.shape[1])
    else:
        raise RecordError(f"column {name} has {values.ndim} dimensions; a record takes 1 or 2.")
    if len(array) != rows:
        raise RecordError(f"column {name} has {len(array)} values for {rows} rows.")
    return array


def _nullable(values: NDArray[Any]) -> pa.Array:
    undefined = np.isnan(values) if values.dtype.kind == "f" else None
    return pa.array(np.ascontiguousarray(values), mask=undefined)


def merge_shards(
    shards: Sequence[Path],
    target: Path,
    *,
    metadata: Mapping[str, Any],
    expected: NDArray[np.int64] | None = None,
    drop_repeats: bool = False,
) -> int:
    """Merge the shards of all ranks into one file sorted by key, then delete them.

    Args:
        shards: One path per rank; a rank without rows may have no file.
        target: The parquet file, replaced whole.
        metadata: Plain values kept in the file.
        expected: Dataset indices that must each be there, in any order; None: not checked.
        drop_repeats: Keep the first of several rows of one key (padded validation) instead of
            refusing them.

    Returns:
        The number of rows R.

    Raises:
        RecordError: A row is missing, unasked for, or repeated.
        InputError: The file cannot be written.
    """
    tables = [_open_shard(shard) for shard in shards if shard.exists()]
    if not tables:
        raise RecordError(f"{target.name}: no row was recorded.")
    table = _joined(tables, target)
    index, position = (table.column(name).to_numpy() for name in KEY)
    order = np.lexsort((position, index))
    order = _once(index, position, order, target, drop_repeats)
    if expected is not None:
        _require(index[order], expected, target)
    del index, position
    described = dict(metadata) | {"format": FORMAT, "rows": len(order)}
    if "prediction" in table.column_names:
        prediction = table.column("prediction").to_numpy()[order]
        described["non_finite"] = int((prediction == EXCLUDED).sum())
    schema = table.schema.with_metadata({_METADATA: json.dumps(described).encode()})
    with replacing(target) as temporary, pq.ParquetWriter(str(temporary), schema) as writer:
        for start in range(0, len(order), _PIECE_ROWS):
            piece = table.take(pa.array(order[start : start + _PIECE_ROWS]))
            writer.write_table(piece.replace_schema_metadata(schema.metadata))
    del table, tables
    for shard in shards:
        shard.unlink(missing_ok=True)
    return len(order)


def _open_shard(path: Path) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} is no complete shard: {_reason(error)}.") from error


def _joined(tables: Sequence[pa.Table], target: Path) -> pa.Table:
    """All rows; a rank that measured none of its own leaves the types to the others."""
    try:
        joined = pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        raise RecordError(f"{target.name}: ranks differ in a column: {_reason(error)}.") from error
    for field in (field for table in tables for field in table.schema):
        kind = joined.schema.field(field.name).type
        if field.type not in (kind, pa.null()):  # Arrow would make lists of two fixed lengths one
            raise RecordError(
                f"{target.name}: ranks differ in a column: {field.name} is {field.type} and {kind}."
            )
    return joined


def _once(
    index: NDArray[np.int64],
    position: NDArray[np.int32],
    order: NDArray[np.int64],
    target: Path,
    drop_repeats: bool,
) -> NDArray[np.int64]:
    keys = np.stack([index[order], position[order]])
    repeated = np.zeros(len(order), dtype=bool)
    repeated[1:] = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    if drop_repeats:
        return order[~repeated]
    if repeated.any():
        first = keys[:, repeated.argmax()]
        raise RecordError(
            f"{target.name}: instance {first[0]} (position {first[1]}) was evaluated twice; "
            "the dataloader must give each instance once."
        )
    return order


def _require(index: NDArray[np.int64], expected: NDArray[np.int64], target: Path) -> None:
    """Compare the sorted index of all rows with the instances that were asked for."""
    found = index[np.diff(index, prepend=index[:1] - 1) != 0]
    if np.array_equal(found, np.sort(expected)):
        return
    missing = np.setdiff1d(expected, found)
    if len(missing):
        raise RecordError(
            f"{target.name}: {len(missing)} of {len(expected)} instances are missing, "
            f"the first is {missing[0]}."
        )
    unasked = np.setdiff1d(found, expected)
    if len(unasked):
        raise RecordError(f"{target.name}: instance {unasked[0]} is not in the dataset.")


def read_record(path: Path, columns: Sequence[str] | None = None) -> Record:
    """Read one record whole.

    Args:
        path: A parquet file that `merge_shards` wrote.
        columns: The columns to read; None: all.

    Raises:
        RecordError: The file is missing or is no record.
    """
    with _opened(path) as file:
        table = file.read(columns=None if columns is None else list(columns))
        return Record(_to_numpy(table), _metadata(file, path))


def read_pieces(
    path: Path, columns: Sequence[str], *, measured: bool = False
) -> Iterator[dict[str, NDArray[Any]]]:
    """Read some columns of a record in pieces of bounded size, in key order.

    Args:
        path: A parquet file that `merge_shards` wrote.
        columns: The columns to read.
        measured: Leave out rows that were not measured; `prediction` must be among the columns.

    Raises:
        RecordError: The file is missing, is no record or lacks a column.
    """
    with _opened(path) as file:
        _metadata(file, path)
        lacking = [name for name in columns if name not in file.schema_arrow.names]
        if lacking:
            raise RecordError(
                f"{path} has no column {lacking[0]}: it is another test's, or a part."
            )
        for batch in file.iter_batches(batch_size=_PIECE_ROWS, columns=list(columns)):
            if measured:
                batch = batch.filter(pc.not_equal(batch.column("prediction"), EXCLUDED))
            yield _to_numpy(pa.Table.from_batches([batch]))


def record_columns(path: Path) -> dict[str, bool]:
    """Names of a record's columns, and whether their values are lists of varying length."""
    with _opened(path) as file:
        return {field.name: _is_ragged(field.type) for field in file.schema_arrow}


def _is_ragged(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what a record says of itself."""
    with _opened(path) as file:
        return _metadata(file, path)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a record; what is damaged may show only when its pages are read."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} is not a readable record: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """What Arrow or the system says, in one line."""
    return " ".join(str(error).split()).rstrip(".")


def _metadata(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    held = (file.schema_arrow.metadata or {}).get(_METADATA)
    if held is None:
        raise RecordError(f"{path} is a parquet file but no attnlight record.")
    metadata: dict[str, Any] = json.loads(held)
    if metadata.get("format") != FORMAT:
        raise RecordError(
            f"{path} is a record of format {metadata.get('format')}; this version of attnlight "
            f"reads format {FORMAT}."
        )
    return metadata


def _to_numpy(table: pa.Table) -> dict[str, NDArray[Any]]:
    return {name: _column(table.column(name)) for name in table.column_names}


def _column(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        return _fixed_lists(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type) and column.null_count:
        column = column.cast(pa.int8())
    return np.asarray(column.to_numpy())


def _fixed_lists(column: pa.ChunkedArray) -> NDArray[Any]:
    """Values (R, K); a row that is null as a whole is a row of NaN."""
    size = column.type.list_size
    flat = _column(pa.chunked_array([c.flatten() for c in column.chunks], column.type.value_type))
    values = flat.reshape(len(column) - column.null_count, size)
    if not column.null_count:
        return values
    whole = np.full((len(column), size), np.nan, np.result_type(values.dtype, np.float32))
    whole[~np.asarray(column.is_null())] = values
    return whole
