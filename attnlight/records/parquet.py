"""Parquet files with checksums of their pages and of their footer, so that damage is detected.

Parquet itself stores a checksum of each page but none of the footer, which holds column names,
types and metadata; this module adds one. Files without checksums are read unchecked.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnlight.errors import one_line
from attnlight.records.format import METADATA, RecordError
from attnlight.storage.files import require_ordinary

_SEAL = b"attnlight_crc32"


def open_writer(path: Path, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:  # noqa: ANN401
    """A `pyarrow.parquet.ParquetWriter` with these options, which adds checksums."""
    sealed = schema.with_metadata((schema.metadata or {}) | {_SEAL: b" ".join(_checksums(schema))})
    return pq.ParquetWriter(str(path), sealed, write_page_checksum=True, **options)


def without_null_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, with a list of K nulls for each null among fixed-size lists of K values."""
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or not column.null_count:
        return column
    return pc.coalesce(column, pa.scalar([None] * kind.list_size, kind))


def readable_by_all(table: pa.Table) -> pa.Table:
    """The table without null fixed-size lists, which pyarrow cannot read from a file before version 26."""
    return pa.table([*map(without_null_lists, table.columns)], schema=table.schema)


def open_parquet(path: Path) -> pq.ParquetFile:
    """A file whose footer is checked; damaged pages are detected only when they are read."""
    require_ordinary(path)
    file = pq.ParquetFile(path, page_checksum_verification=True)
    schema, footer = file.schema_arrow, file.metadata
    metadata, *columns = _checksums(schema)
    expected = (schema.metadata or {}).get(_SEAL, b"").split()
    # A copy with a subset of the columns passes.
    if expected and (expected[0] != metadata or not set(columns) <= set(expected[1:])):
        raise RecordError(
            f"{path} is damaged: its columns or metadata differ from those written (a "
            f"program that changes them must drop the metadata key {_SEAL.decode()})."
        )
    rows = sum(footer.row_group(place).num_rows for place in range(footer.num_row_groups))
    if rows != footer.num_rows:
        raise RecordError(f"{path} is damaged: it has {rows} rows; expected {footer.num_rows}.")
    return file


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Raise `RecordError`, which names the file, where the block cannot open or read it."""
    try:
        yield
    except RecordError:
        raise
    except (OSError, pa.ArrowException, UnicodeError) as error:  # also of a path that is no UTF-8
        raise RecordError(f"{path} is not a readable record: {one_line(error)}.") from error


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all or some columns of a file, without the checksums in its metadata."""
    with reading_errors(path), open_parquet(path) as file:
        table = file.read(columns=None if columns is None else list(columns))
    metadata = {key: text for key, text in (table.schema.metadata or {}).items() if key != _SEAL}
    return table.replace_schema_metadata(metadata or None)


def _checksums(schema: pa.Schema) -> list[bytes]:
    """CRC-32 of attnlight's metadata and of each column's name and type, as text."""
    # Parquet names the values of a list `element`, whatever their name in Arrow.
    columns = [f"{f.name} {f.type}".replace("list<item:", "list<element:") for f in schema]
    metadata = (schema.metadata or {}).get(METADATA, b"")
    return [b"%08x" % zlib.crc32(part) for part in (metadata, *map(str.encode, columns))]
