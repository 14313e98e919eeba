"""Parquet files that notice damage: their pages and what the footer says have checksums.

Parquet itself keeps a checksum of each page. Names, types and metadata stand in the footer, which
has none: theirs is kept there by this module. Files without checksums are read as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnlight.errors import one_line
from attnlight.records.format import METADATA, RecordError

_SEAL = b"attnlight_crc32"


def open_writer(path: Path, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:  # noqa: ANN401
    """A writer of a file with checksums.

    Args:
        path: The file.
        schema: Its columns, their types and its metadata.
        options: Of `pyarrow.parquet.ParquetWriter`.
    """
    sealed = schema.with_metadata((schema.metadata or {}) | {_SEAL: b" ".join(_checksums(schema))})
    return pq.ParquetWriter(str(path), sealed, write_page_checksum=True, **options)


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file whose footer is whole; damaged pages show only when they are read.

    Raises:
        RecordError: The file is missing or damaged, here or where it is read in the block.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema, about = file.schema_arrow, file.metadata
            metadata, *columns = _checksums(schema)
            expected = (schema.metadata or {}).get(_SEAL, b"").split()
            # A copy that was made of some of the columns passes.
            if expected and (expected[0] != metadata or not set(columns) <= set(expected[1:])):
                raise RecordError(
                    f"{path} is damaged: its columns or metadata are not as they were written (a "
                    f"program that changes them must drop the metadata key {_SEAL.decode()})."
                )
            rows = sum(about.row_group(place).num_rows for place in range(about.num_row_groups))
            if rows != about.num_rows:
                raise RecordError(f"{path} is damaged: it has {rows} rows, not {about.num_rows}.")
            yield file
    except RecordError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is not a readable record: {one_line(error)}.") from error


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file whole, or some of its columns, without the checksums in its metadata.

    Raises:
        RecordError: The file is missing or damaged.
    """
    with open_parquet(path) as file:
        table = file.read(columns=None if columns is None else list(columns))
    metadata = {key: text for key, text in (table.schema.metadata or {}).items() if key != _SEAL}
    return table.replace_schema_metadata(metadata or None)


def _checksums(schema: pa.Schema) -> list[bytes]:
    """CRC-32 of the metadata of attnlight and of the name and type of each column, as text."""
    # Parquet calls the values of a list its elements, whatever Arrow called them.
    columns = [f"{f.name} {f.type}".replace("list<item:", "list<element:") for f in schema]
    metadata = (schema.metadata or {}).get(METADATA, b"")
    return [b"%08x" % zlib.crc32(part) for part in (metadata, *map(str.encode, columns))]
