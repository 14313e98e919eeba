"""The archived records behind the page.

`<experiment>/seed<k>/`, unpacked from docs/results by `packed`, has the layout of a run folder, so
that `attnlight report` can read it: fit.yaml, logs/, records/test/, and the necessary columns of
`attnlight predict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.records.parquet import read_table

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # SafeLoader takes ten times as long


def _without_nulls(config: Any) -> Any:  # noqa: ANN401
    """A configuration without its null options, which runs of an earlier version may lack."""
    if isinstance(config, dict):
        return {key: _without_nulls(part) for key, part in config.items() if part is not None}
    return config


@dataclass(frozen=True, eq=False)
class Experiment:
    """The archived runs of one experiment, one for each seed.

    Attributes:
        name: Stem of its file in configs/experiments.
        folders: The archived run folders, by seed.
        seeds: Seed of each run.
        curves: Metrics logged on validation during fit, a column for each `val/<name>`, by seed and
            epoch from 0.
        chosen: The epoch chosen on validation, by seed: the first of highest accuracy or, of models
            with an objective, of highest accuracy less penalties.
    """

    name: str
    folders: list[Path]
    seeds: list[int]
    curves: pd.DataFrame
    chosen: pd.Series

    @classmethod
    def read(cls, root: Path, name: str) -> Experiment:
        """The runs of `root/name`, which must differ only in their seed.

        Raises:
            InputError: There is no run, a folder's name is not its seed, or two runs differ.
        """
        folders = sorted((root / name).glob("seed*"), key=lambda path: path.name)
        if not folders:
            raise InputError(f"{root / name} holds no seed<k> folder.")
        configs = [yaml.load((run / "fit.yaml").read_text(), _Loader) for run in folders]
        seeds = [int(config.pop("seed_everything")) for config in configs]
        logged = {}
        for folder, seed, config in zip(folders, seeds, configs, strict=True):
            config.pop("run", None)  # like the seed, it may differ between runs
            if folder.name != f"seed{seed}":
                raise InputError(f"{folder} was trained with seed {seed}.")
            if _without_nulls(config) != _without_nulls(configs[0]):
                raise InputError(f"{folder} and {folders[0]} differ in more than their seed.")
            # A resumed run goes on in another file; those of `test` have no epochs.
            files = [pd.read_csv(path) for path in sorted(folder.glob("logs/*/metrics.csv"))]
            epochs = (
                pd.concat(files).dropna(subset="val/loss").drop_duplicates("epoch", keep="last")
            )
            logged[seed] = epochs.filter(regex="^val/").reset_index(drop=True)
        curves = pd.concat(logged, names=["seed", "epoch"])
        curves.columns = curves.columns.str.removeprefix("val/")
        best = curves["objective" if "objective" in curves else "accuracy"]
        chosen = best.unstack("epoch").idxmax(axis="columns")
        return cls(name, folders, seeds, curves, chosen)

    def test(self, name: str, *, partial: bool = False) -> dict[str, NDArray[Any]]:
        """Columns of a test that all runs have, (S, n) or (S, n, K); `index` and `label` are (n,).

        Floats are in double precision.

        Raises:
            InputError: A record is partial and `partial` is false, or two records are of different
                texts.
        """
        runs = []
        for folder in self.folders:
            record = read_record(path := folder / f"records/test/{name}.parquet")
            if (record.metadata["partial"] and not partial) or record.metadata["stage"] != "test":
                raise InputError(f"{path} does not hold the whole test split.")
            runs.append(record.columns)
        shared = [column for column in runs[0] if all(column in run for run in runs)]
        columns = {column: np.stack([run[column] for run in runs]) for column in shared}
        for column, values in columns.items():
            if column in ("index", "label"):
                if (values != values[0]).any():
                    raise InputError(f"the runs of {self.name} were tested on different texts.")
                columns[column] = values[0]
            elif np.issubdtype(values.dtype, np.floating):
                columns[column] = values.astype(np.float64)
        return columns

    def predicted(self) -> pd.DataFrame:
        """The texts written by `attnlight predict`, those of each run in the order of the test.

        Raises:
            InputError: They are not the texts of the test.
        """
        tables = [read_table(folder / "predictions.parquet") for folder in self.folders]
        texts = pd.DataFrame([text for table in tables for text in table.to_pylist()])
        if [*texts["index"]] != [*self.test("predictions")["index"]] * len(tables):
            raise InputError(f"{self.name}: predict and test saw different texts.")
        return texts


class Archive(dict[str, Experiment]):
    """Every experiment that has a run below a root, by name, and the published figures."""

    def __init__(self, root: Path, published: Mapping[str, Any]) -> None:
        names = sorted({path.parents[1].name for path in root.glob("*/seed*/fit.yaml")})
        super().__init__({name: Experiment.read(root, name) for name in names})
        self.root, self.published = root, published

    def __missing__(self, name: str) -> Experiment:
        return Experiment.read(self.root, name)  # raises: there is no run
