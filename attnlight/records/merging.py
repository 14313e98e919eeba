"""Merge the shards of all ranks into one record."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.errors import one_line
from attnlight.records.format import EXCLUDED, FORMAT, KEY, METADATA, PIECE_ROWS, RecordError
from attnlight.records.parquet import open_writer
from attnlight.storage.files import replacing


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
        target: The parquet file, replaced atomically.
        metadata: Plain values stored in the file.
        expected: Dataset indices that must all occur, in any order; None: not checked.
        drop_repeats: Keep the first of several rows of one key (padded validation) instead of
            refusing them.

    Returns:
        The number of rows R.

    Raises:
        RecordError: A row is missing, unexpected or repeated.
        InputError: The file cannot be written.
    """
    table = _read_shards([shard for shard in shards if shard.exists()], target)
    index, position = (table.column(name).to_numpy() for name in KEY)
    order = _checked_order(index, position, expected, drop_repeats, target)
    del index, position
    description = dict(metadata) | {"format": FORMAT, "rows": len(order)}
    if "prediction" in table.column_names:
        prediction = table.column("prediction").to_numpy()[order]
        description["non_finite"] = int((prediction == EXCLUDED).sum())
    schema = table.schema.with_metadata({METADATA: json.dumps(description).encode()})
    with replacing(target) as temporary, open_writer(temporary, schema) as writer:
        for start in range(0, len(order), PIECE_ROWS):
            piece = table.take(pa.array(order[start : start + PIECE_ROWS]))
            writer.write_table(piece.replace_schema_metadata(schema.metadata))
    del table
    for shard in shards:
        shard.unlink(missing_ok=True)
    return len(order)


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


def _checked_order(
    index: NDArray[np.int64],
    position: NDArray[np.int32],
    expected: NDArray[np.int64] | None,
    drop_repeats: bool,
    target: Path,
) -> NDArray[np.int64]:
    """The order (R,) of rows by key, without repeats; arguments as for `merge_shards`."""
    order = np.lexsort((position, index))
    keys = np.stack([index[order], position[order]])
    repeated = np.zeros(len(order), dtype=bool)
    repeated[1:] = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    if drop_repeats:
        order = order[~repeated]
    elif repeated.any():
        first = keys[:, repeated.argmax()]
        raise RecordError(
            f"{target.name}: instance {first[0]} (position {first[1]}) was evaluated twice; "
            "the dataloader must give each instance once."
        )
    if expected is None or np.array_equal(np.unique(keys[0]), np.sort(expected)):
        return order
    missing = np.setdiff1d(expected, keys[0])
    if len(missing):
        raise RecordError(
            f"{target.name}: {len(missing)} of {len(expected)} instances are missing, "
            f"the first is {missing[0]}."
        )
    unexpected = np.setdiff1d(keys[0], expected)
    if len(unexpected):
        raise RecordError(f"{target.name}: instance {unexpected[0]} is not in the dataset.")
    return order
