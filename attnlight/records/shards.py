"""Write one rank's rows while a test runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.records.format import EXCLUDED, RecordError
from attnlight.storage.files import named_errors

Columns = Mapping[str, "NDArray[Any] | pa.Array"]
_SHARD_ROWS = 8_192


def list_column(values: NDArray[Any] | pa.Array, lengths: NDArray[np.integer]) -> pa.ListArray:
    """The values split into consecutive lists of the given lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = pa.array(values) if isinstance(values, np.ndarray) else values
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


class ShardWriter:
    """Append rows to one rank's shard, which replaces an existing one.

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

        Keys (R, 2) are dataset index and position; columns are (R,) or (R, K), where NaN becomes
        null, or Arrow arrays of length R.

        Raises:
            RecordError: A column has an unsupported shape or type, or one that differs from earlier
                rows.
        """
        arrays = {
            "index": pa.array(np.ascontiguousarray(rows[:, 0]), pa.int64()),
            "position": pa.array(np.ascontiguousarray(rows[:, 1]).astype(np.int32)),
        }
        for name, values in columns.items():
            array = values
            if isinstance(values, np.ndarray):
                if values.ndim not in (1, 2):
                    raise RecordError(
                        f"column {name} has {values.ndim} dimensions; a record takes 1 or 2."
                    )
                flat = np.ascontiguousarray(values.reshape(-1))
                array = pa.array(flat, mask=np.isnan(flat) if flat.dtype.kind == "f" else None)
                if values.ndim == 2:
                    array = pa.FixedSizeListArray.from_arrays(array, values.shape[1])
            if len(array) != len(rows):
                raise RecordError(f"column {name} has {len(array)} values for {len(rows)} rows.")
            arrays[name] = array
        self._append(pa.record_batch(arrays))

    def exclude(self, rows: NDArray[np.int64], columns: Sequence[str] = ()) -> None:
        """Append rows (R, 2) that were not measured: `prediction` is -1, other columns are null.

        If no row of the shard is measured, these are `columns`.
        """
        self._excluded.append((rows, columns))

    def close(self) -> None:
        """Write pending rows and close the shard."""
        keys = {"index": pa.int64(), "position": pa.int32(), "prediction": pa.int64()}
        for rows, columns in self._excluded:
            others = {name: pa.null() for name in columns if name not in keys}
            schema = self._schema or pa.schema(keys | others)
            values = dict(zip(keys, (*rows.T, np.full(len(rows), EXCLUDED)), strict=True))
            arrays = [
                pa.array(values[field.name], field.type)
                if field.name in values
                else pa.nulls(len(rows), field.type)
                for field in schema
            ]
            self._append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._excluded = []
        self._flush()
        if self._writer is not None:
            with named_errors(self.path):
                self._writer.close()
            self._writer = None

    def _append(self, batch: pa.RecordBatch) -> None:
        before, after = self._schema or batch.schema, batch.schema
        if before.names != after.names:
            changed = sorted(set(before.names) ^ set(after.names)) or after.names
            raise RecordError(f"column {changed[0]} is not in every batch.")
        for old, new in zip(before, after, strict=True):
            if old.type != new.type:
                raise RecordError(
                    f"column {old.name} is of type {old.type} in one batch and {new.type} in "
                    "another; values of varying length need list columns."
                )
        self._schema = before
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
