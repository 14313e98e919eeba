"""Records on disk: one row per instance, one parquet file per test.

While a test runs, each rank appends its rows to its shard; at the end of the epoch rank 0
merges the shards into one file sorted by key, through a memory map and in pieces, so that memory
does not grow with the corpus. Callbacks write, the report reads.
"""

from attnlight.records.format import EXCLUDED, FORMAT, KEY, Record, RecordError
from attnlight.records.merging import merge_shards
from attnlight.records.reading import (
    SCORES,
    TEXT_MARKS,
    TEXTS,
    RecordFile,
    Source,
    clustered_pieces,
    kept_scores,
    read_metadata,
    read_pieces,
    read_record,
    read_rows,
    record_columns,
)
from attnlight.records.shards import Columns, ShardWriter, list_column

__all__ = [
    "EXCLUDED",
    "FORMAT",
    "KEY",
    "SCORES",
    "TEXTS",
    "TEXT_MARKS",
    "Columns",
    "Record",
    "RecordError",
    "RecordFile",
    "ShardWriter",
    "Source",
    "clustered_pieces",
    "kept_scores",
    "list_column",
    "merge_shards",
    "read_metadata",
    "read_pieces",
    "read_record",
    "read_rows",
    "record_columns",
]
