"""Merge the shards of all ranks into one record."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.errors import one_line
from attnlight.records.format import EXCLUDED, FORMAT, KEY, METADATA, PIECE_ROWS, RecordError
from attnlight.records.parquet import open_writer, readable_by_all
from attnlight.storage.files import replacing

# Ranges of dataset indices are made of so many equal ones; the rows of one in memory have so many bytes.
_BINS, _BYTES = 1 << 16, 1 << 24


def merge_shards(
    shards: Sequence[Path],
    target: Path,
    *,
    metadata: Mapping[str, Any],
    expected: NDArray[np.int64] | None = None,
    drop_repeats: bool = False,
) -> int:
    """Merge the shards of all ranks into one file sorted by key, delete them, and count its rows.

    A rank without rows may have no shard; the target, a parquet file, is replaced atomically.
    `expected` are dataset indices that must all occur, in any order; None: not checked.
    `drop_repeats` keeps the first of several rows of one key (padded validation) instead of
    refusing them.

    Raises:
        RecordError: A row is missing, unexpected or repeated.
        InputError: The file cannot be written.
    """
    table = _read_shards([shard for shard in shards if shard.exists()], target)
    batches = [batch for batch in table.to_batches() if len(batch)]
    order = partial(_parts, edges=_edges(batches), drop_repeats=drop_repeats, target=target)
    keys = [name for name in table.column_names if name in (*KEY, "prediction")]
    parts = order([batch.select(keys) for batch in batches], table.select(keys).schema)
    description = dict(metadata) | {"format": FORMAT} | _counts(parts, expected, target)
    schema = table.schema.with_metadata({METADATA: json.dumps(description).encode()})
    with replacing(target) as temporary, open_writer(temporary, schema) as writer:
        for _, _, part in order(batches, table.schema):
            part = readable_by_all(part).replace_schema_metadata(schema.metadata)
            for start in range(0, len(part), PIECE_ROWS):
                writer.write_table(part.slice(start, PIECE_ROWS))
    del table, batches
    for shard in shards:
        shard.unlink(missing_ok=True)
    return int(description["rows"])


def _edges(batches: Sequence[pa.RecordBatch]) -> list[int]:
    """Bounds of the ranges of dataset indices whose rows are in memory together, ascending.

    They differ in rows where many rows have nearly equal indices; the first and the last are open.
    """
    limits = np.iinfo(np.int64)
    if not batches:
        return [limits.min, limits.max]
    indices = [batch.column("index").to_numpy() for batch in batches]
    least, most = min(int(x.min()) for x in indices), max(int(x.max()) for x in indices)
    width = -(-(most - least + 1) // _BINS)
    counts = np.zeros(_BINS, dtype=np.int64)
    for index in indices:
        counts += np.bincount((index - least) // width, minlength=_BINS)
    size = sum(batch.get_total_buffer_size() for batch in batches) // counts.sum() + 1
    number = (counts.cumsum() - counts) // max(PIECE_ROWS, _BYTES // size)
    inner = least + width * (np.flatnonzero(np.diff(number)) + 1)
    return [limits.min, *inner.tolist(), limits.max]


def _parts(
    batches: Sequence[pa.RecordBatch],
    schema: pa.Schema,
    edges: Sequence[int],
    drop_repeats: bool,
    target: Path,
) -> Iterator[tuple[int, int, pa.Table]]:
    """Bounds of each range of dataset indices, and its rows in the order of their keys.

    Other arguments are those of `merge_shards`.
    """
    indices = [batch.column("index").to_numpy() for batch in batches]
    spans = [(int(index.min()), int(index.max())) for index in indices]
    for low, high in pairwise(edges):
        inside = []
        for batch, index, (least, most) in zip(batches, indices, spans, strict=True):
            if low <= least and most < high:
                inside.append(batch)
            elif least < high and low <= most:
                inside.append(batch.take(np.flatnonzero((low <= index) & (index < high))))
        part = pa.Table.from_batches(inside, schema).combine_chunks()
        part = part.take(np.lexsort([part.column(name).to_numpy() for name in KEY[::-1]]))
        keys = np.stack([part.column(name).to_numpy() for name in KEY])
        repeated = np.zeros(len(part), dtype=bool)
        repeated[1:] = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
        if repeated.any() and not drop_repeats:
            first = keys[:, repeated.argmax()]
            raise RecordError(
                f"{target.name}: instance {first[0]} (position {first[1]}) was evaluated twice; "
                "the dataloader must give each instance once."
            )
        yield low, high, part.filter(~repeated)


def _counts(
    parts: Iterable[tuple[int, int, pa.Table]], expected: NDArray[np.int64] | None, target: Path
) -> dict[str, int]:
    """Numbers of rows, and of those not measured, of what `_parts` yields; errors of `merge_shards`."""
    counts, missing, lacking, others = {"rows": 0}, 0, None, None
    if expected is not None and (expected[1:] < expected[:-1]).any():
        expected = np.sort(expected)
    for low, high, part in parts:
        counts["rows"] += len(part)
        if "prediction" in part.column_names:
            excluded = int((part.column("prediction").to_numpy() == EXCLUDED).sum())
            counts["non_finite"] = counts.get("non_finite", 0) + excluded
        if expected is not None:
            wanted = expected[slice(*np.searchsorted(expected, np.array([low, high])))]
            index = part.column("index").to_numpy()
            absent, unexpected = wanted[~np.isin(wanted, index)], index[~np.isin(index, wanted)]
            missing += len(absent)
            lacking = absent[0] if lacking is None and len(absent) else lacking
            others = unexpected[0] if others is None and len(unexpected) else others
    if expected is not None and missing:
        raise RecordError(
            f"{target.name}: {missing} of {len(expected)} instances are missing, the first is {lacking}."
        )
    if others is not None:
        raise RecordError(f"{target.name}: instance {others} is not in the dataset.")
    return counts


def _read_shards(shards: Sequence[Path], target: Path) -> pa.Table:
    """All rows, by memory map; column types come from the ranks that measured rows."""
    tables = []
    for shard in shards:
        try:
            tables.append(pa.ipc.open_file(pa.memory_map(str(shard))).read_all())
        except (OSError, pa.ArrowException) as error:
            raise RecordError(f"{shard} is not a complete shard: {one_line(error)}.") from error
    if not tables:
        raise RecordError(f"{target.name}: no row was recorded.")
    try:
        joined = pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        raise RecordError(f"{target.name}: ranks differ in a column: {one_line(error)}.") from error
    for field in (field for table in tables for field in table.schema):
        kind = joined.schema.field(field.name).type
        if field.type not in (kind, pa.null()):  # Arrow merges lists of different fixed lengths
            raise RecordError(
                f"{target.name}: ranks differ in a column: {field.name} is {field.type} and {kind}."
            )
    return joined
