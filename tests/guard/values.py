"""Values by key: how they are read from files, kept, and compared.

Keys are segments between slashes, such as `text/base/records/test/predictions/label`. Nothing here
uses the package, so that the guard does not change with what it guards.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

Values = dict[str, NDArray[Any]]
# Of floats, relative or absolute: another processor's instructions round otherwise, and training
# amplifies it (weights differed by 6e-5 at most between AVX-512 and AVX2).
TOLERANCE = 5e-4
SHARE = 0.002  # of the values of a discrete column, where a margin is below the tolerance
NUMBER = re.compile(r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")  # noqa: RUF001
_MANY = 20  # values of a discrete column, one of which may differ
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_HEAD = ("key", "type", "shape", "values")


def record(path: Path) -> Values:
    """The columns of a parquet file; lists are flat, and have their lengths beside them."""
    found: Values = {}
    table = pq.read_table(path)
    for name in table.column_names:
        column = table[name].combine_chunks()
        if any(test(column.type) for test in _LISTS):
            lengths = pa.compute.list_value_length(column)
            found[f"{name}/lengths"] = lengths.fill_null(-1).to_numpy(zero_copy_only=False)
            column = column.flatten()
        if pa.types.is_string(column.type):
            found[name] = np.array([str(value) for value in column.to_pylist()], dtype=np.str_)
        else:
            found[name] = column.to_numpy(zero_copy_only=False)
    return found


def weights(path: Path) -> Values:
    """The tensors of a checkpoint; the dots of a parameter's name become slashes."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    states = {name.replace(".", "/"): v.numpy() for name, v in checkpoint["state_dict"].items()}
    return states | {"epoch": np.array([checkpoint["epoch"]])}


def metrics(path: Path) -> Values:
    """What a CSV logger wrote, each scalar in the order it was logged."""
    logged = pd.read_csv(path, dtype=str, keep_default_na=False)  # NaN is logged, too
    return {name: column[column != ""].to_numpy(float) for name, column in logged.items()}


def csv_table(path: Path) -> Values:
    """Cells of a CSV file by heading and by the first cells, as many as tell the rows apart."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *body = csv.reader(file)
    left = 1
    while len({tuple(row[:left]) for row in body}) < len(body) and left < len(head):
        if any(NUMBER.match(row[left]) for row in body):
            break
        left += 1
    labels, columns = _named("/".join(row[:left]) for row in body), _named(head)
    return {
        f"{label}/{column}": np.array([cell], dtype=np.str_)
        for label, row in zip(labels, body, strict=True)
        for column, cell in zip(columns[left:], row[left:], strict=True)
    }


def _named(names: Iterable[str]) -> list[str]:
    """Names made different: the second of a name gets ` #2`."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return found


def under(stem: str, values: Mapping[str, NDArray[Any]]) -> Values:
    """Values whose keys stand below one more segment."""
    return {f"{stem}/{key}": found for key, found in values.items()}


def of_run(folder: Path) -> Values:
    """Records, logged metrics, last weights and the chosen epoch of a run."""
    found = {"best/epoch": weights(folder / "best.ckpt")["epoch"]}
    if (folder / "last.ckpt").exists():
        found |= under("weights", weights(folder / "last.ckpt"))
    for path in sorted(folder.glob("logs/*/metrics.csv")):
        logged = metrics(path)
        stage = "test" if any(name.startswith("test/") for name in logged) else "fit"
        found |= under(f"logged/{stage}", logged)
    for path in sorted(folder.glob("records/**/*.parquet")):
        place = path.relative_to(folder).with_suffix("").as_posix()
        found |= under(re.sub(r"-(\d+)$", r"/\1", place), record(path))
    return found


def of_report(folder: Path) -> Values:
    """The tables of a report."""
    found: Values = {}
    for path in sorted(folder.rglob("*.csv")):
        found |= under(path.relative_to(folder).with_suffix("").as_posix(), csv_table(path))
    return found


def write(path: Path, values: Values) -> None:
    """Keep values as text, a line for each key in order; texts of more than one value are lists."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEAD)
        for key, value in sorted(values.items()):
            kind = value.dtype.name if value.dtype.kind != "U" else "text"
            words = "\n".join(value.flat) if kind == "text" else " ".join(map(str, value.flat))
            writer.writerow((key, kind, " ".join(map(str, value.shape)), words))


def read(path: Path) -> Values:
    """Values that `write` kept."""
    found: Values = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            size, text = tuple(map(int, row["shape"].split())), row["type"] == "text"
            parts = row["values"].split("\n") if text else row["values"].split()
            parts = [] if 0 in size else parts
            found[row["key"]] = np.array(parts, "str" if text else row["type"]).reshape(size)
    return found


def differences(expected: Values, found: Values) -> list[str]:
    """What is missing or differs from the landed code, a line for each key; there may be more."""
    said = [f"missing: {key}" for key in sorted(expected.keys() - found.keys())]
    shared = sorted(expected.keys() & found.keys())
    both = {key: _difference(expected[key], found[key]) for key in shared}
    return said + [f"{key}: {words}" for key, words in both.items() if words]


def _difference(old: NDArray[Any], new: NDArray[Any]) -> str:
    if old.shape != new.shape:
        return f"shape {new.shape} was {old.shape}"
    kinds, allowed = {old.dtype.kind, new.dtype.kind}, 0.0
    if "U" in kinds:
        alike = np.array([*map(_same_cell, map(str, old.flat), map(str, new.flat))])
    elif "f" in kinds:
        pair = (values.astype(np.float64).ravel() for values in (new, old))
        alike = np.isclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    else:
        alike = (old == new).ravel()
        allowed = max(SHARE * old.size, float(old.size >= _MANY))
    wrong = np.flatnonzero(~alike) if alike.size else alike
    if len(wrong) <= allowed:
        return ""
    first = wrong[0]
    return f"{len(wrong)} of {old.size} differ, number {first}: {new.flat[first]} was {old.flat[first]}"


def _same_cell(old: str, new: str) -> bool:
    """Whether two cells have the same words, and numbers within the tolerance."""
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    texts = [cell.replace("−", "-") for cell in (new, old)]  # noqa: RUF001
    pairs = ([*map(float, NUMBER.findall(text))] for text in texts)
    return bool(np.allclose(*pairs, rtol=TOLERANCE, atol=TOLERANCE))
