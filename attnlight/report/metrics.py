"""What the task logged, from the CSV files of Lightning's CSVLogger."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnlight.errors import InputError

Row = Mapping[str, str]


@dataclass(frozen=True)
class Metrics:
    """The task's own metrics; those of the tests are read from records.

    Attributes:
        curves: `<metric>` to its value after each validation epoch of fit.
        test: `<metric>` to its latest value on the test split.
    """

    curves: Mapping[str, Mapping[int, float]]
    test: Mapping[str, float]


def read_metrics(logs: Path) -> Metrics:
    """Read `version_*/metrics.csv`; a later version (a resumed run, a second test) goes first.

    Raises:
        InputError: A file is no CSV of metrics.
    """
    curves: dict[str, dict[int, float]] = {}
    test: dict[str, float] = {}
    for path in sorted(logs.glob("version_*/metrics.csv"), key=_version):
        rows = _read(path)
        test |= {name: value for row in rows for name, value in _own(row, "test/").items()}
        if not any(_own(row, "train/") for row in rows):
            continue  # `attnlight validate` logs as epoch 0 whatever checkpoint it evaluates
        for row in rows:
            for name, value in _own(row, "val/").items():
                curves.setdefault(name, {})[int(float(row["epoch"]))] = value
    ordered = {name: dict(sorted(points.items())) for name, points in curves.items()}
    return Metrics(ordered, test)


def _version(path: Path) -> tuple[int, str]:
    number = path.parent.name.removeprefix("version_")
    return (int(number) if number.isdigit() else -1, number)


def _read(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[Row] = list(csv.DictReader(file))
        for row in rows:
            for value in filter(None, row.values()):
                float(value)
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable file of metrics: {error}.") from error
    return rows


def _own(row: Row, prefix: str) -> dict[str, float]:
    """The task's metrics `<prefix><metric>` in a row; `<prefix><test>/<measure>` are a test's."""
    return {
        name.removeprefix(prefix): float(value)
        for name, value in row.items()
        if value and name.startswith(prefix) and "/" not in name.removeprefix(prefix)
    }
