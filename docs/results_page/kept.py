"""The kept records behind the page, read again.

`docs/results/<experiment>/seed<k>/` is laid out as a run folder, so that `attnlight report` reads
it too: fit.yaml, logs/, records/test/, and of `attnlight predict` the columns that count.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import read_metadata, read_record
from attnlight.records.parquet import read_table


@dataclass(frozen=True)
class Experiment:
    """The kept runs of one experiment, one for each seed.

    Attributes:
        name: Stem of its file in configs/experiments.
        folders: The kept run folders, by seed.
    """

    name: str
    folders: list[Path]

    @classmethod
    def read(cls, root: Path, name: str) -> Experiment:
        """The runs of `root/name`, which must differ in nothing but their seed.

        Raises:
            InputError: There is none, a folder's name is not its seed, two runs differ, or one of
                them was tested on part of its test split.
        """
        found = cls(name, sorted((root / name).glob("seed*"), key=lambda path: path.name))
        if not found.folders:
            raise InputError(f"{root / name} holds no seed<k> folder.")
        found._require_alike()
        return found

    @cached_property
    def configs(self) -> list[dict[str, Any]]:
        """fit.yaml of each run."""
        return [yaml.safe_load((folder / "fit.yaml").read_text()) for folder in self.folders]

    @property
    def seeds(self) -> list[int]:
        """Seed of each run."""
        return [int(config["seed_everything"]) for config in self.configs]

    @cached_property
    def validation(self) -> list[dict[str, list[float]]]:
        """Each run's scalars `val/<name>` by name, one value per epoch of fit."""
        return [_validation(folder / "logs/version_0/metrics.csv") for folder in self.folders]

    @property
    def chosen(self) -> list[int]:
        """The epoch of each run that validation chose, from 0: the first of highest accuracy."""
        return [int(np.argmax(curves["accuracy"])) for curves in self.validation]

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        metadata = read_metadata(self.folders[0] / "records/test/predictions.parquet")
        return [str(name) for name in metadata["classes"]]

    def test(self, name: str, *, partial: bool = False) -> dict[str, NDArray[Any]]:
        """A test's columns over all runs, (S, n) or (S, n, K); `index` and `label` are (n,).

        Args:
            name: The test.
            partial: Let it have run on some of the texts alone.
        """
        paths = [folder / f"records/test/{name}.parquet" for folder in self.folders]
        runs = [_columns(path, partial=partial) for path in paths]
        columns = {column: np.stack([run[column] for run in runs]) for column in runs[0]}
        for column in ("index", "label"):
            if column in columns:
                if (columns[column] != columns[column][0]).any():
                    raise InputError(f"the runs of {self.name} were tested on different texts.")
                columns[column] = columns[column][0]
        return columns

    def first(self, name: str, *, partial: bool = False) -> dict[str, NDArray[Any]]:
        """A test's columns of the first seed alone, (n,) or (n, K), all but `index` float64.

        Args:
            name: The test.
            partial: Let it have run on some of the texts alone.
        """
        columns = _columns(self.folders[0] / f"records/test/{name}.parquet", partial=partial)
        return {
            column: values if column == "index" else values.astype(np.float64)
            for column, values in columns.items()
        }

    def predicted(self) -> list[list[dict[str, Any]]]:
        """What `attnlight predict` wrote, one list of texts per run."""
        return [read_table(folder / "predictions.parquet").to_pylist() for folder in self.folders]

    def _require_alike(self) -> None:
        plain = [
            {key: value for key, value in config.items() if key not in ("seed_everything", "run")}
            for config in self.configs
        ]
        for folder, seed, config in zip(self.folders, self.seeds, plain, strict=True):
            if folder.name != f"seed{seed}":
                raise InputError(f"{folder} was trained with seed {seed}.")
            if config != plain[0]:
                raise InputError(f"{folder} and {self.folders[0]} differ in more than their seed.")


def _columns(path: Path, *, partial: bool) -> dict[str, NDArray[Any]]:
    record = read_record(path)
    if (record.metadata["partial"] and not partial) or record.metadata["stage"] != "test":
        raise InputError(f"{path} does not hold the whole test split.")
    return record.columns


def _validation(path: Path) -> dict[str, list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    names = [name for name in rows[0] if name.startswith("val/")]
    return {name.removeprefix("val/"): [float(row[name]) for row in rows] for name in names}
