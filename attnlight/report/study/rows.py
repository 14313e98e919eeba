"""The rows of `study.parquet`: what each finished run says of every test text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.study.plan import StudyRun

FILE = "study.parquet"
Column = NDArray[Any]
Columns = Mapping[str, Column]


def read_rows(
    path: Path, runs: Sequence[StudyRun], whole: Sequence[str], same: Sequence[str]
) -> dict[str, Columns]:
    """The columns of each finished run in ascending order of `index`.

    Args:
        path: `study.parquet`.
        runs: Every run of the study.
        whole: Columns of whole numbers that there must be, `index` among them: null is -1. Of all
            others null is NaN; lists become one column for each place, `NAME_0` and so on.
        same: Columns that are to be the same in every run.

    Raises:
        InputError: The file is missing, damaged or lacks a column, or its rows are not those of one
            set of texts for each finished run.
    """
    table, names = _read_parquet(path, whole)
    owner = table.pop("run")
    order = np.lexsort((table["index"], owner))
    starts = np.searchsorted(owner[order], np.arange(len(names) + 1))
    places = {name: order[starts[k] : starts[k + 1]] for k, name in enumerate(names)}
    found: dict[str, Columns] = {}
    for run in runs:
        if run.finished:
            own = places.get(run.name, order[:0])
            found[run.name] = {name: values[own] for name, values in table.items()}
    first = next(iter(found))
    for name, columns in found.items():
        _require_same_texts(path, first, found[first], name, columns, same)
    return found


def _read_parquet(path: Path, whole: Sequence[str]) -> tuple[dict[str, Column], list[str]]:
    """Every column, `run` as numbers, and the names of the runs that these count."""
    import pyarrow as pa

    from attnlight.records.parquet import read_table

    if not path.exists():
        raise InputError(f"{path} is missing: run `attnlight study` first.")
    table = read_table(path)
    for name in ("run", *whole):
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name}: collect the study again.")
    owner = table["run"].cast(pa.string()).combine_chunks().dictionary_encode()
    columns: dict[str, Column] = {"run": owner.indices.fill_null(-1).to_numpy()}
    for name in table.column_names:
        if name in whole:
            columns[name] = table[name].fill_null(-1).to_numpy().astype(np.int64)
        elif pa.types.is_list(table.schema.field(name).type):
            columns |= _split(path, name, table[name])
        elif name != "run":
            columns[name] = table[name].to_numpy().astype(np.float64)
    return columns, owner.dictionary.to_pylist()


def _split(path: Path, name: str, lists: Any) -> dict[str, Column]:  # noqa: ANN401
    """A column of lists that are null or equally long as one column for each place."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(lists).to_numpy()  # NaN of null
    there = ~np.isnan(lengths)
    sizes = np.unique(lengths[there]).astype(int).tolist()
    if len(sizes) > 1:
        raise InputError(f"{path} has lists of {sizes} values in {name}: collect the study again.")
    filled = np.full((len(lengths), *sizes), np.nan)
    filled[there] = pc.list_flatten(lists).to_numpy().reshape(-1, *sizes)
    return {f"{name}_{place}": filled[:, place] for place in range(sum(sizes))}


def _require_same_texts(
    path: Path, first: str, columns: Columns, name: str, other: Columns, same: Sequence[str]
) -> None:
    if not len(other["index"]):
        raise InputError(f"{path} holds no rows of {name}, which is finished: collect it again.")
    if len(np.unique(other["index"])) < len(other["index"]):
        raise InputError(f"{path} holds a text of {name} twice.")
    for key in same:
        if not np.array_equal(columns[key], other[key]):
            raise InputError(f"{path} holds other texts of {name} than of {first}.")
