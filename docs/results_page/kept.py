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

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the other takes ten times as long
_OWN = ("seed_everything", "run")  # what runs of one experiment may differ in


@dataclass(frozen=True, eq=False)
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
        first, *_ = plain = [
            {k: config[k] for k in config if k not in _OWN} for config in found.configs
        ]
        for folder, seed, config in zip(found.folders, found.seeds, plain, strict=True):
            if folder.name != f"seed{seed}":
                raise InputError(f"{folder} was trained with seed {seed}.")
            if config != first:
                raise InputError(f"{folder} and {found.folders[0]} differ in more than their seed.")
        return found

    @cached_property
    def configs(self) -> list[dict[str, Any]]:
        """fit.yaml of each run."""
        return [yaml.load((run / "fit.yaml").read_text(), _Loader) for run in self.folders]

    @property
    def seeds(self) -> list[int]:
        """Seed of each run."""
        return [int(config["seed_everything"]) for config in self.configs]

    @cached_property
    def validation(self) -> list[dict[str, list[float]]]:
        """Each run's scalars `val/<name>` by name, one value per epoch of fit."""
        found = []
        for folder in self.folders:
            with (folder / "logs/version_0/metrics.csv").open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["val/loss"]]
            names = [name for name in rows[0] if name.startswith("val/")]
            found.append({n.removeprefix("val/"): [float(row[n]) for row in rows] for n in names})
        return found

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

        Raises:
            InputError: A record is of a part of the test split, or two are of different texts.
        """
        runs = []
        for folder in self.folders:
            record = read_record(path := folder / f"records/test/{name}.parquet")
            if (record.metadata["partial"] and not partial) or record.metadata["stage"] != "test":
                raise InputError(f"{path} does not hold the whole test split.")
            runs.append(record.columns)
        columns = {column: np.stack([run[column] for run in runs]) for column in runs[0]}
        for column in {"index", "label"} & columns.keys():
            if (columns[column] != columns[column][0]).any():
                raise InputError(f"the runs of {self.name} were tested on different texts.")
            columns[column] = columns[column][0]
        return columns

    def predicted(self) -> list[list[dict[str, Any]]]:
        """What `attnlight predict` wrote, one list of texts per run."""
        return [read_table(folder / "predictions.parquet").to_pylist() for folder in self.folders]


class Kept(dict[str, Experiment]):
    """The experiments below docs/results, each read once, when it is first asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, name: str) -> Experiment:
        self[name] = Experiment.read(self.root, name)
        return self[name]
