"""Run folders packed into a parquet file for each page, and unpacked to be read.

A file of docs/results has a row for each key (`folder`, `index`, `position`) of its runs, whatever
the number of records that contain it. A column is named after its record (`test/decision_flip/length`)
and null in rows that the record does not contain (lists of fixed length have nulls there). `files`,
in a folder's first row, is JSON: the text of each other file (configuration, metrics, status), and
columns, rows and metadata of each record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnlight.errors import InputError
from attnlight.records.parquet import open_writer, read_table, readable_by_all
from attnlight.storage.files import replacing
from results_page import NAMES

KEYS = ("index", "position", "prediction")  # alike in all records of a run
FOLDER, FILES = "folder", "files"
PAGES: dict[str, str] = NAMES["packed"]
_DISTINCT = 2**12  # a column of fewer values is a dictionary
_CLASSES = 16  # of more classes the numbers are plain
# A page for each column, since what repeats is stored once within a page alone; older releases of pyarrow
# limit no rows.
_LIMITS = {"data_page_size", "max_rows_per_page"} & signature(pq.write_table).parameters.keys()
_SUFFIX = ".parquet"


def pack(root: Path, records: Path) -> None:
    """Replace the packed files in `records` by the folders of runs and studies below `root`."""
    tables: dict[str, list[pa.Table]] = {}
    # Folders of runs and of studies, and those of experiments with a file of their own.
    names = ("fit.yaml", "test.yaml", "study.json")
    found = {path.parent for name in names for path in root.rglob(name)}
    found |= {path.parent for end in (_SUFFIX, ".csv") for path in root.glob(f"*/*{end}")}
    for folder in sorted(path.relative_to(root).as_posix() for path in found):
        page = next(page for start, page in PAGES.items() if folder.startswith(start))
        tables.setdefault(page, []).append(_folder_table(root, folder))
    for path in records.glob(f"*{_SUFFIX}"):
        if path.stem in {*PAGES.values()} - tables.keys():
            path.unlink()
    for page, parts in tables.items():
        _write(pa.concat_tables(parts, promote_options="permissive"), records / f"{page}{_SUFFIX}")


def unpack(records: Path, root: Path) -> None:
    """Write the folders of all packed files in `records` below `root`.

    Raises:
        InputError: A record does not have its rows.
    """
    for page in sorted({*PAGES.values()}):
        if (path := records / f"{page}{_SUFFIX}").is_file():
            table = read_table(path)
            starts = np.flatnonzero(table[FILES].is_valid())
            for start, stop in pairwise([*starts.tolist(), len(table)]):
                _unpack_folder(table.slice(start, stop - start), root)


def _folder_table(root: Path, folder: str) -> pa.Table:
    """The rows of a folder, a column for each of its records' columns."""
    nested = folder.count("/")  # an experiment's folder contains those of its runs
    found = (root / folder).rglob("*.*") if nested else (root / folder).glob("*.*")
    files: dict[str, Any] = {}
    tables: dict[str, pa.Table] = {}
    for path in sorted(found):
        place = path.relative_to(root / folder).as_posix()
        if path.suffix != _SUFFIX:
            files[place] = path.read_text(encoding="utf-8")
            continue
        table = tables[place] = read_table(path)
        marks = {key.decode(): text.decode() for key, text in (table.schema.metadata or {}).items()}
        files[place] = {"columns": table.column_names, "rows": len(table), "metadata": marks}
    joined = _joined(tables) if tables else {}
    rows = len(next(iter(joined.values()), [None]))
    text = json.dumps(files, ensure_ascii=False)
    first = pa.array([text, *[None] * (rows - 1)], pa.string())
    return pa.table({FOLDER: pa.array([folder] * rows), FILES: first, **joined})


def _packed_name(place: str, column: str) -> str:
    """The name of a record's column among those of all records; the keys have their own."""
    return (
        column if column in KEYS else f"{place.removeprefix('records/')[: -len(_SUFFIX)]}/{column}"
    )


def _joined(tables: Mapping[str, pa.Table]) -> dict[str, pa.ChunkedArray]:
    """The columns of the records of a run, a row for each key; a single record as it is."""
    if len(tables) == 1:
        ((place, table),) = tables.items()
        return {_packed_name(place, name): table[name] for name in table.column_names}
    keys = {}  # a number for each row, ascending, from its index and position
    for place, table in tables.items():
        positions = table["position"].to_numpy() if "position" in table.column_names else 0
        keys[place] = (table["index"].to_numpy().astype(np.int64) << 32) + positions
        if (np.diff(keys[place]) <= 0).any():
            raise InputError(f"{place} has a key twice, or its keys do not ascend.")
    every = np.unique(np.concatenate([*keys.values()]))
    columns: dict[str, pa.ChunkedArray] = {}
    for place, table in tables.items():
        rows = np.searchsorted(keys[place], every).clip(max=len(table) - 1)
        missing = keys[place][rows] != every
        taken = table.take(pa.array(rows, mask=missing))
        for name, column in zip(table.column_names, taken.columns, strict=True):
            name = _packed_name(place, name)
            columns[name] = pc.coalesce(columns[name], column) if name in columns else column
    return columns


def _unpack_folder(table: pa.Table, root: Path) -> None:
    """Write the files of a folder from its rows."""
    folder = root / table[FOLDER][0].as_py()
    files: dict[str, Any] = json.loads(table[FILES][0].as_py())
    records = {place for place, content in files.items() if isinstance(content, dict)}
    for place, content in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if place not in records:
            (folder / place).write_text(content, encoding="utf-8")
            continue
        names = {_packed_name(place, name): name for name in content["columns"]}
        part = table.select([*names]).rename_columns([*names.values()])
        if len(records) > 1:
            own = [
                part[field.name].is_valid()
                for field in part.schema
                if field.name not in KEYS and not pa.types.is_fixed_size_list(field.type)
            ]
            part = part.filter(reduce(pc.or_, own))
        if len(part) != content["rows"]:
            raise InputError(f"{folder / place} has {len(part)} of {content['rows']} rows.")
        marks = content["metadata"] or None
        pq.write_table(part.replace_schema_metadata(marks), folder / place, compression="none")


def _write(table: pa.Table, target: Path) -> None:
    """Write a table compactly: floats of many values as byte streams, indices as differences.

    Positions and many classes are plain: what repeats between runs is found in whole bytes alone.
    """
    table = readable_by_all(table.combine_chunks())
    with replacing(target) as temporary:
        pq.write_table(table.slice(0, 1), temporary)
        schema = pq.ParquetFile(temporary).schema
        leaves = [schema.column(place) for place in range(len(schema))]
        floats = []
        for leaf in (leaf for leaf in leaves if leaf.physical_type == "FLOAT"):
            values = table[leaf.path.partition(".list.")[0]]
            while pa.types.is_nested(values.type):
                values = pc.list_flatten(values)
            if pc.count_distinct(values).as_py() > _DISTINCT:  # too many for a dictionary
                floats.append(leaf.path)
        classes = (name for name in table.column_names if name.endswith(("prediction", "label")))
        many = (name for name in classes if pc.count_distinct(table[name]).as_py() > _CLASSES)
        encoding = dict.fromkeys(floats, "BYTE_STREAM_SPLIT") | {"index": "DELTA_BINARY_PACKED"}
        encoding |= dict.fromkeys([*many, "position"], "PLAIN")
        with open_writer(
            temporary,
            table.schema,
            compression="brotli",
            compression_level=11,
            write_statistics=False,
            **dict.fromkeys(_LIMITS, 2**30),
            use_dictionary=[leaf.path for leaf in leaves if leaf.path not in encoding],
            column_encoding=encoding,
        ) as writer:
            writer.write_table(table, row_group_size=len(table))
