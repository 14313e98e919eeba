"""The archived records behind the page.

`<experiment>/seed<k>/`, unpacked from docs/results by `packed`, has the layout of a run folder, so
that `attnlight report` can read it: fit.yaml, logs/, records/test/, and the necessary columns of
`attnlight predict`.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.records.parquet import read_table
from attnlight.storage.files import parse_yaml, read_yaml
from results_page.tables import Row

FIT, TEST = "fit.yaml", "test.yaml"
PLANS = Path(__file__).parents[2] / "configs/studies"
_SEED = re.compile(r"^seed_everything: (\d+)$", re.MULTILINE)
_OF_RUN = re.compile(r"^(?:seed_everything|run): .*\n", re.MULTILINE)  # differs between runs


def config_of(run: Path) -> Path:
    """The configuration of a run, which has no `fit.yaml` where it tested a model from elsewhere."""
    return run / (TEST if (run / TEST).is_file() and not (run / FIT).is_file() else FIT)


class Condition(NamedTuple):
    """A condition of a study.

    Attributes:
        words: Its words on the page.
        seeds: How many seeds are planned.
        options: Its options.
        size: The number of its training texts, or `all`.
    """

    words: Row
    seeds: int
    options: Mapping[str, Any]
    size: int | str


def conditions(study: str, pattern: str, names: Mapping[str, str]) -> dict[str, Condition]:
    """The conditions of a study, by the name of the folder of their runs.

    Of a grid, what an earlier list gives hides what a later one does.

    Args:
        study: The study.
        pattern: What these names match; its groups are columns of their words.
        names: Words on the page; of others themselves.
    """
    content = read_yaml(PLANS / f"{study}.yaml")
    found = {}
    for cell in product(*(axis.items() for axis in content.get("grid") or [content["conditions"]])):
        keys, parts = zip(*cell, strict=True)
        given = dict(ChainMap(*parts))
        base = content.get("base", {}) | given.get("base", {})
        match = re.fullmatch(pattern, name := f"{study}-{'-'.join(keys)}")
        assert match is not None, name
        words = {column: names.get(x, x) for column, x in match.groupdict().items()}
        options = given.get("options", {})
        data = options.get("data", {})
        size = data.get("train_size", data.get("subset", {}).get("train", "all"))
        found[name] = Condition(words, len(base["seeds"]), options, size)
    return found


def _given(options: Any) -> Any:  # noqa: ANN401
    """Options in order but those that are null or off, which runs of an earlier version may lack."""
    if isinstance(options, dict):
        kept = ((name, _given(x)) for name, x in sorted(options.items(), key=str))
        return {name: x for name, x in kept if x is not None and x is not False}
    return [*map(_given, options)] if isinstance(options, list) else options


@dataclass(frozen=True, eq=False)
class Experiment:
    """The archived runs of one experiment, one for each seed.

    Attributes:
        name: Stem of its file in configs/experiments.
        folders: The archived run folders, by seed.
        seeds: Seed of each run.
        curves: Metrics logged on validation during fit, a column for each `val/<name>`, by seed and
            epoch from 0.
        published: The published figures.
    """

    name: str
    folders: list[Path]
    seeds: list[int]
    curves: pd.DataFrame
    published: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, name: str, published: Mapping[str, Any] | None = None) -> Experiment:
        """The runs of `root/name`, which must differ only in their seed.

        Raises:
            InputError: There is no run, a folder's name is not its seed, or two runs differ.
        """
        folders = sorted((root / name).glob("seed*"), key=lambda path: path.name)
        if not folders:
            raise InputError(f"{root / name} holds no seed<k> folder.")
        texts = [config_of(run).read_text(encoding="utf-8") for run in folders]
        configs = [_OF_RUN.sub("", text) for text in texts]
        if len(set(configs)) > 1:  # parsing takes most of the time
            configs = [str(_given(parse_yaml(text, name))) for text in configs]
        seeds, logged = [], {}
        for folder, text, config in zip(folders, texts, configs, strict=True):
            seed = int(_SEED.findall(text)[0])
            if folder.name != f"seed{seed}":
                raise InputError(f"{folder} was trained with seed {seed}.")
            if config != configs[0]:
                raise InputError(f"{folder} and {folders[0]} differ in more than their seed.")
            seeds.append(seed)
            # A resumed run goes on in another file; those of `test` have no epochs.
            if not (folder / FIT).is_file():  # it tested a model from elsewhere
                continue
            files = pd.concat(map(pd.read_csv, sorted(folder.glob("logs/*/metrics.csv"))))
            epochs = files.dropna(subset="val/loss").drop_duplicates("epoch", keep="last")
            logged[seed] = epochs.filter(regex="^val/").reset_index(drop=True)
        curves = pd.concat(logged, names=["seed", "epoch"]) if logged else pd.DataFrame()
        curves.columns = curves.columns.astype(str).str.removeprefix("val/")
        return cls(name, folders, seeds, curves, published or {})

    @property
    def chosen(self) -> pd.Series:
        """The epoch chosen on validation, by seed.

        It is the first of highest accuracy or, of models with an objective, of highest accuracy less
        penalties.
        """
        best = self.curves["objective" if "objective" in self.curves else "accuracy"]
        return best.unstack("epoch").idxmax(axis="columns")

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
        columns = {}
        for column in (x for x in runs[0] if all(x in run for run in runs)):
            values = np.stack([run[column] for run in runs])
            if column in ("index", "label"):
                if (values != values[0]).any():
                    raise InputError(f"the runs of {self.name} were tested on different texts.")
                values = values[0]
            floating = np.issubdtype(values.dtype, np.floating)
            columns[column] = values.astype(np.float64) if floating else values
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
    """The experiments that have a run below a root, by name, and the published figures.

    An experiment is read when it is first asked for.
    """

    def __init__(self, root: Path, published: Mapping[str, Any]) -> None:
        self.root, self.published = root, published

    def __contains__(self, name: object) -> bool:
        return any(config_of(run).is_file() for run in self.root.glob(f"{name}/seed*"))

    def __missing__(self, name: str) -> Experiment:
        self[name] = Experiment.read(self.root, name, self.published)
        return self[name]

    def words(self, name: str, model: Row | Condition) -> Row:
        """The words of an archived model, of a condition with how many of its seeds are archived."""
        if not isinstance(model, Condition):
            return model
        return model.words | {"seeds": f"{len(self[name].seeds)} of {model.seeds}"}
