"""Read a record at once or in pieces."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnlight.errors import InputError, one_line
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
from attnlight.records.parquet import open_parquet, reading_errors, without_null_lists
from attnlight.storage.model_folder import require_run_or_tested

SCORES = "scores_"  # prefix of columns of lists, one score per item, written with `keep_scores`
TEXTS = "texts"  # a record that shows texts with scores of their items, without measures
_KEEPING_SCORES = ("importance_correlation", "plausibility", "saliency_agreement")  # where asked to
TEXT_MARKS = ("evidence", "rationale", "impermissible")  # per-token columns of that record


class RecordFile:
    """A record that is opened at most twice, however often it is asked.

    Metadata and names of columns are read at once, without keeping the file open; the first that
    reads rows opens it until it is closed or this object is deleted. The file, a parquet file that
    `merge_shards` wrote, need not exist.

    Raises:
        RecordError: When it is first read, the file is missing, damaged or not a record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: pq.ParquetFile | None = None

    @staticmethod
    def of(source: Source) -> RecordFile:
        """The record of a path, or the record itself."""
        return source if isinstance(source, RecordFile) else RecordFile(source)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        with reading_errors(self.path), open_parquet(self.path) as file:
            return file.schema_arrow

    @cached_property
    def columns(self) -> dict[str, bool]:
        """Names of columns, and whether their values are lists of varying length."""
        return {
            field.name: bool(pa.types.is_list(field.type) or pa.types.is_large_list(field.type))
            for field in self.schema
        }

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata."""
        text = (self.schema.metadata or {}).get(METADATA)
        if text is None:
            raise RecordError(f"{self.path} is a parquet file but not an attnlight record.")
        try:
            metadata: Any = json.loads(text)
            if not isinstance(metadata, dict):
                raise TypeError("its metadata are not a mapping")
            if (found := metadata.get("format")) != FORMAT:
                raise TypeError(f"its format is {found}; this version of attnlight reads {FORMAT}")
            for name, value in metadata.items():
                names = value if name in ("classes", "measures") else ()
                typed = isinstance(value, METADATA_TYPES.get(name, object))
                if not typed or not all(isinstance(text, str) for text in names):
                    raise TypeError(f"its {name} is {value!r}")
        except (ValueError, TypeError, RecursionError) as error:
            raise RecordError(
                f"{self.path} is not a readable record: {one_line(error)}."
            ) from error
        return metadata

    @contextmanager
    def rows(self) -> Iterator[pq.ParquetFile]:
        """The open file."""
        with reading_errors(self.path):
            self._file = self._file or open_parquet(self.path)
            yield self._file

    def close(self) -> None:
        """Close the file; what is read next opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


Source = Path | RecordFile  # of a path the file is opened for each question


def read_record(source: Source, columns: Sequence[str] | None = None) -> Record:
    """Read some columns of a record at once; None: all. Raises as `RecordFile`."""
    record = RecordFile.of(source)
    metadata = record.metadata
    with record.rows() as file:
        table = file.read(columns=None if columns is None else list(columns))
        return Record({name: _column(table.column(name)) for name in table.column_names}, metadata)


def read_pieces(
    source: Source,
    columns: Sequence[str],
    *,
    measured: bool = False,
    texts: NDArray[np.int64] | None = None,
) -> Iterator[dict[str, NDArray[Any]]]:
    """Read some columns of a record in pieces of bounded size, in key order.

    Rows that were not measured are left out if `measured`, for which `prediction` must be among the
    columns; `texts` (None: all) are the dataset indices of the rows, for which `index` must be.

    Raises:
        RecordError: As of `RecordFile`, or the file lacks a column.
    """
    record = RecordFile.of(source)
    _ = record.metadata  # raises where the file is not a record
    lacking = [name for name in columns if name not in record.columns]
    if lacking:
        raise RecordError(
            f"{record.path} has no column {lacking[0]}: it is another test's record or a partial one."
        )
    with record.rows() as file:
        for batch in file.iter_batches(batch_size=PIECE_ROWS, columns=list(columns)):
            if measured:
                batch = batch.filter(pc.not_equal(batch.column("prediction"), EXCLUDED))
            if texts is not None:
                batch = batch.filter(pc.is_in(batch.column("index"), pa.array(texts)))
            yield {name: _column(pa.chunked_array([batch.column(name)])) for name in columns}


def read_rows(
    source: Source,
    columns: Sequence[str],
    *,
    measured: bool = False,
    texts: NDArray[np.int64] | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of `read_pieces` one at a time, each by column."""
    for piece in read_pieces(source, columns, measured=measured, texts=texts):
        for values in zip(*piece.values(), strict=True):
            yield dict(zip(piece, values, strict=True))


def clustered_pieces(
    source: Source, columns: Sequence[str]
) -> Iterator[tuple[dict[str, NDArray[Any]], NDArray[np.int64]]]:
    """Pieces as of `read_pieces`, and the cluster of each row (R,), in ascending order.

    Intervals resample clusters. They are the dataset indices, unless the metadata name a column as
    `clusters`: then the record is one piece, without the rows that have no cluster because they were
    not measured.
    """
    record = RecordFile.of(source)
    column = record.metadata.get("clusters")
    if column not in record.columns:
        for piece in read_pieces(record, [KEY[0], *columns]):
            yield piece, piece[KEY[0]]
        return
    rows = read_record(record, [column, *columns]).columns
    order = rows[column].argsort(kind="stable")
    order = order[~np.isnan(rows[column][order])]
    yield (
        {name: values[order] for name, values in rows.items()},
        rows[column][order].astype(np.int64),
    )


def record_columns(source: Source) -> dict[str, bool]:
    """Names of a record's columns, and whether their values are lists of varying length."""
    return RecordFile.of(source).columns


def read_metadata(source: Source) -> dict[str, Any]:
    """A copy of the metadata of a record."""
    return dict(RecordFile.of(source).metadata)


def kept_scores(path: Path) -> list[str]:
    """Names of the scores in a test's record in a run folder, without their prefix.

    Raises:
        InputError: There is no record, or it keeps no scores; the command that writes it is named.
    """
    there, columns = path.is_file(), record_columns(path) if path.is_file() else {}
    if names := [n.removeprefix(SCORES) for n in columns if n.startswith(SCORES)]:
        return names
    run, (stage, _, corpus) = path.parents[2], path.parent.name.partition("-")
    if not there:
        require_run_or_tested(run)
    verb = {"val": "validate"}.get(stage, stage)
    place = ["-c", str(run / f"{verb}-{corpus}.yaml")] if corpus else [str(run)]
    if verb == "predict":  # whose folder names a split in place of a corpus
        place = [str(run), f"--data.predict_split={corpus}"]
    keep = ["--trainer.callbacks.keep_scores=true"] * (path.stem in _KEEPING_SCORES)
    keep += ["--overwrite"] * (bool(keep) and there)
    command = ["attnlight", verb, *place, "--tests", path.stem if keep else TEXTS, *keep]
    lacking = f"{path} holds no scores" if there else f"there is no {path}"
    raise InputError(f"{lacking}: run `{shlex.join(command)}`.")


def _column(column: pa.ChunkedArray) -> NDArray[Any]:
    """Values (R,), or (R, K) for lists of fixed length K; a null list is a row of NaN."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not pa.types.is_fixed_size_list(kind):
        nullable = pa.types.is_boolean(kind) and column.null_count
        return np.asarray((column.cast(pa.int8()) if nullable else column).to_numpy())
    column = without_null_lists(column)
    flat = _column(pa.chunked_array([c.flatten() for c in column.chunks], kind.value_type))
    return flat.reshape(len(column), kind.list_size)
