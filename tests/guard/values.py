"""Values by key: how they are read from files, kept, and compared.

Keys are segments between slashes, such as `text/base/records/test/predictions/label`. Nothing here
uses the package, so that the guard does not change with what it guards.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

Values = dict[str, NDArray[Any]]
TOLERANCE = 1e-6  # of floats, relative or absolute
# Of models trained here: another processor's instructions round otherwise, and training amplifies it
# (weights differed by 6e-5 at most between AVX-512 and AVX2).
TRAINED = 5e-4
SHARE = 0.002  # of the values of a discrete column, where a margin is below the tolerance
NUMBER = re.compile(r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")  # noqa: RUF001
_DECIMAL = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
_INTERVAL = re.compile(rf"({NUMBER.pattern}) \[({NUMBER.pattern}), ({NUMBER.pattern})\]")
# Pages of runs: what they show must be among what they showed. All of it is in their CSV files.
_PAGE = re.compile(r"report/\w+/(base|kept)/numbers")
_MANY = 20  # values
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_KINDS = {"singles": "float32", "doubles": "float64", "integers": "int64", "texts": "str"}


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
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows if row[name]]) for name in rows[0]}


def csv_table(path: Path) -> Values:
    """The cells of a CSV file by row and column."""
    with path.open(encoding="utf-8", newline="") as file:
        return cells(list(csv.reader(file)))


def markdown_tables(text: str) -> Values:
    """The cells of all tables of a page in Markdown, by the name of their place and their number."""
    found: Values = {}
    place, number, rows = "page", 0, []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
        elif rows:
            number += 1
            found |= under(f"{place}/{number}", cells([rows[0], *rows[2:]]))
            rows = []
        if mark := re.match(r"<!-- (\w+): (begin|end) -->", line):
            place, number = (mark[1], 0) if mark[2] == "begin" else ("page", number)
    return found


def cells(rows: Sequence[Sequence[str]]) -> Values:
    """The cells below a head by the row's first cells and the column's heading."""
    head, *body = rows
    left = (
        1  # columns that name a row: the first, and while that leaves twins those without numbers
    )
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


def _named(names: Iterator[str] | Sequence[str]) -> list[str]:
    """Names made different: the second of a name gets ` #2`."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return found


def verdict(text: str) -> Values:
    """The decimals and the estimates with intervals of each answer, in order of size.

    Words and their order are free; the questions keep their order.
    """
    found: Values = {}
    for number, answer in enumerate(re.split(r"^## .*$", text, flags=re.MULTILINE)[1:], start=1):
        answer = answer.replace("−", "-")  # noqa: RUF001
        triples = sorted(tuple(map(float, three)) for three in _INTERVAL.findall(answer))
        found[f"{number}/decimals"] = np.array(sorted(map(float, _DECIMAL.findall(answer))))
        found[f"{number}/intervals"] = np.array(triples, dtype=np.float64).reshape(-1, 3)
    return found


def page_numbers(text: str) -> Values:
    """All decimals in the cells of a page's tables and in its headlines, in order of size."""
    shown = re.finditer(r"<(td|p class=\"headline\")[^>]*>(.*?)</(td|p)>", text, flags=re.DOTALL)
    said = " ".join(found[2] for found in shown)
    decimals = _DECIMAL.findall(re.sub(r"<[^>]*>", " ", said))
    return {"numbers": np.array(sorted(map(float, decimals)), dtype=np.float64)}


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
    """The tables and verdicts of a report."""
    found = page_numbers((folder / "index.html").read_text(encoding="utf-8"))
    for path in sorted(folder.rglob("*.csv")):
        found |= under(path.relative_to(folder).with_suffix("").as_posix(), csv_table(path))
    if (folder / "verdict.md").is_file():
        found |= under("verdict", verdict((folder / "verdict.md").read_text(encoding="utf-8")))
    return found


def write(path: Path, values: Values) -> None:
    """Keep values in a parquet file, a row for each key."""
    rows: list[dict[str, Any]] = []
    for key, value in sorted(values.items()):
        kind = {"U": "texts", "f": "doubles"}.get(value.dtype.kind, "integers")
        kind = "singles" if value.dtype in (np.float32, np.float16) else kind
        flat = value.astype(_KINDS[kind]).ravel().tolist()
        rows.append({"key": key, "shape": list(value.shape), kind: flat})
    types = zip(_KINDS, (pa.float32(), pa.float64(), pa.int64(), pa.string()), strict=True)
    schema = pa.schema({"key": pa.string(), "shape": pa.list_(pa.int64())})
    for kind, type_ in types:
        schema = schema.append(pa.field(kind, pa.list_(type_)))
    table = pa.Table.from_pylist(rows, schema)
    pq.write_table(table, path, compression="zstd", compression_level=19)


def read(path: Path) -> Values:
    """Values that `write` kept."""
    found: Values = {}
    for row in pq.read_table(path).to_pylist():
        (kind,) = (kind for kind in _KINDS if row[kind] is not None)
        found[row["key"]] = np.array(row[kind], dtype=_KINDS[kind]).reshape(row["shape"])
    return found


def differences(
    expected: Values, found: Values, renamed: Mapping[str, str], tolerance: float = TOLERANCE
) -> list[str]:
    """What differs, a line for each key that is missing, additional or of another value.

    Args:
        expected: Values of the landed code.
        found: Values of the code at hand.
        renamed: New names by old ones, each a key or some segments of keys.
        tolerance: Of floats; above `TOLERANCE` one value of a discrete column may differ, too.
    """
    new = {key: _renamed(key, renamed) for key in expected}
    said = [f"missing: {key}" for key in sorted(set(new.values()) - found.keys())]
    said += [f"additional: {key}" for key in sorted(found.keys() - set(new.values()))]
    said += [f"two of one name: {key}" for key, n in Counter(new.values()).items() if n > 1]
    for old, key in new.items():
        compare = _surplus if _PAGE.fullmatch(key) else _difference
        if key in found and (words := compare(expected[old], found[key], tolerance)):
            said.append(f"{key}: {words}")
    return said


def _renamed(key: str, renamed: Mapping[str, str]) -> str:
    for old, new in renamed.items():
        key = f"/{key}/".replace(f"/{old}/", f"/{new}/")[1:-1]
    return key


def _difference(old: NDArray[Any], new: NDArray[Any], tolerance: float) -> str:
    if old.shape != new.shape:
        return f"shape {new.shape} was {old.shape}"
    kinds, allowed = {old.dtype.kind, new.dtype.kind}, 0.0
    if "U" in kinds:
        alike = np.array(
            [_same_cell(str(a), str(b), tolerance) for a, b in zip(old.flat, new.flat, strict=True)]
        )
    elif "f" in kinds:
        pair = (values.astype(np.float64).ravel() for values in (new, old))
        alike = np.isclose(*pair, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        alike, allowed = (old == new).ravel(), SHARE * old.size
        if tolerance > TOLERANCE and old.size >= _MANY:
            allowed = max(allowed, 1)
    wrong = np.flatnonzero(~alike) if alike.size else alike
    if len(wrong) <= allowed:
        return ""
    first = wrong[0]
    return f"{len(wrong)} of {old.size} differ, number {first}: {new.flat[first]} was {old.flat[first]}"


def _surplus(old: NDArray[Any], new: NDArray[Any], tolerance: float) -> str:
    """Numbers that are not among the old ones, or that there is none."""
    among = np.isclose(new[:, None], old, rtol=tolerance, atol=tolerance).any(axis=1)
    wrong = new[~among].tolist()
    return f"not among the old: {wrong[:3]}" if wrong or not len(new) else ""


def _same_cell(old: str, new: str, tolerance: float) -> bool:
    """Whether two cells have the same words, and numbers within the tolerance."""
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    pairs = (
        [float(number.replace("−", "-")) for number in NUMBER.findall(cell)]  # noqa: RUF001
        for cell in (new, old)
    )
    return bool(np.allclose(*pairs, rtol=tolerance, atol=tolerance))
