"""A study as the report reads it: what its runs are, and what each says of every test text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError

SCHEMA = 1
FILE, ROWS = "study.json", "study.parquet"
FINISHED = "finished"
ROLES = ("base", "uniform", "seed", "guide", "adversary")
Column = NDArray[Any]


@dataclass(frozen=True)
class StudyRun:
    """One run that the study plans.

    Attributes:
        name: Its folder within the study.
        role: One of `ROLES`.
        seed: Its seed.
        base: The run that it is made from; None for a base.
        guide: Whose attention guides it; None where its role is another.
        term: The attention term of an adversary: `kl`, `js` or `tvd`.
        lam: The weight of that term.
        state: `finished`, `failed` or `missing`.
        epoch: The epoch that validation chose, from 0; None where it has none yet.
        validation: Measures on the validation split at that epoch.
        frontier: Corners of a base's frontier: mean total variation distance, mean JS.
    """

    name: str
    role: str
    seed: int
    base: str | None = None
    guide: str | None = None
    term: str | None = None
    lam: float | None = None
    state: str = FINISHED
    epoch: int | None = None
    validation: Mapping[str, float | None] = field(default_factory=dict)
    frontier: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def finished(self) -> bool:
        """Whether the run's rows are in the study."""
        return self.state == FINISHED


@dataclass(frozen=True)
class Study:
    """What a study planned and what came of it.

    Attributes:
        name: The study's name.
        experiment: The experiment that its base is of.
        corpus: The corpus.
        classes: Names of the classes.
        selected: Term and lambda of the adversary that validation chose; None before it can.
        best: Lambda that validation chose of each attention term, where the study says.
        runs: Every run of the plan.
        label: True class of each test text, (n,), -1 where it has none.
        columns: For each finished run its columns over these texts, each (n,), NaN where undefined.
    """

    name: str
    experiment: str
    corpus: str
    classes: Sequence[str]
    selected: tuple[str, float] | None
    best: Mapping[str, float]
    runs: Sequence[StudyRun]
    label: NDArray[np.int64]
    columns: Mapping[str, Mapping[str, Column]]

    @property
    def bases(self) -> list[StudyRun]:
        """The bases, of which the first is the base of all that has only one."""
        return self.planned("base")

    @property
    def f1(self) -> str:
        """What is called F1: of the second of two classes, else the mean over classes."""
        return f"F1 of {self.classes[1]}" if len(self.classes) == 2 else "macro F1"

    def planned(self, role: str, **which: object) -> list[StudyRun]:
        """The runs of a role, of those whose attributes are as given."""
        return [
            run
            for run in self.runs
            if run.role == role and all(getattr(run, key) == value for key, value in which.items())
        ]

    def finished(self, role: str, **which: object) -> list[StudyRun]:
        """The finished ones of `planned`."""
        return [run for run in self.planned(role, **which) if run.finished]

    def architecture(self, base: StudyRun) -> list[StudyRun]:
        """A base with its seed variants: one architecture over several seeds."""
        return [*([base] if base.finished else []), *self.finished("seed", base=base.name)]

    def controls(self, base: StudyRun, term: str | None = None) -> list[StudyRun]:
        """Imitations without a divergence term, lambda 0, where the term makes no difference.

        Those planned for the term where there are any, else those of any term.
        """
        every = self.finished("adversary", base=base.name, lam=0.0)
        return [run for run in every if run.term == term] or every

    def values(self, runs: Sequence[StudyRun], column: str) -> Column:
        """A column of some finished runs, (S, n); NaN where a run does not have it."""
        empty = np.full(len(self.label), np.nan)
        held = [self.columns[run.name].get(column, empty) for run in runs]
        return np.stack(held) if held else np.empty((0, len(self.label)))


def read_study(folder: Path) -> Study:
    """Read `study.json` and `study.parquet` of a study's folder.

    Raises:
        InputError: A file is missing or damaged, of another schema, the two do not belong
            together, or no run is finished yet.
    """
    path = folder / FILE
    held = _read_json(path)
    try:
        runs = [_run(entry) for entry in held["runs"]]
        selected = held["selected"] and (
            held["selected"]["term"],
            float(held["selected"]["lambda"]),
        )
        best = {str(t): float(of["lambda"]) for t, of in (held.get("best") or {}).items() if of}
        name, experiment, corpus = (str(held[key]) for key in ("study", "experiment", "corpus"))
        classes = [str(name) for name in held["classes"]]
    except KeyError as error:
        raise InputError(f"{path} has no key {error.args[0]!r}: collect the study again.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is not as `attnlight study` writes it: {error}.") from None
    _require_names(path, runs)
    if not any(run.finished for run in runs):
        raise InputError(f"{path} names no finished run: run `attnlight study` first.")
    label, columns = _read_rows(folder / ROWS, runs)
    return Study(name, experiment, corpus, classes, selected or None, best, runs, label, columns)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `attnlight study` first.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from None
    schema = held.get("schema") if isinstance(held, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} is of schema {schema}; this version reads schema {SCHEMA}.")
    return dict(held)


def _run(entry: Mapping[str, Any]) -> StudyRun:
    frontier, lam = entry.get("frontier"), entry.get("lambda")
    return StudyRun(
        name=str(entry["name"]),
        role=str(entry["role"]),
        seed=int(entry["seed"]),
        base=entry.get("base"),
        guide=entry.get("guide"),
        term=entry.get("term"),
        lam=None if lam is None else float(lam),
        state=str(entry["state"]),
        epoch=entry.get("epoch"),
        validation=entry.get("validation") or {},
        frontier=(frontier["tvd"], frontier["js"]) if frontier and frontier["tvd"] else None,
    )


def _require_names(path: Path, runs: Sequence[StudyRun]) -> None:
    """Names become parts of file names, and roles decide what a run counts for."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise InputError(f"{path} names a run twice.")
    if not any(run.role == "base" for run in runs):
        raise InputError(f"{path} names no base.")
    for run in runs:
        if not re.fullmatch(r"[\w.+-]*[\w+-]", run.name):
            raise InputError(f"{path} names a run {run.name!r}, which is no name of a folder.")
        if run.role not in ROLES:
            raise InputError(f"{path} gives {run.name} the role {run.role!r}, not one of {ROLES}.")


def _read_rows(
    path: Path, runs: Sequence[StudyRun]
) -> tuple[NDArray[np.int64], dict[str, dict[str, Column]]]:
    """Labels (n,), and the columns of each finished run in ascending order of `index`."""
    table = _read_parquet(path)
    owner = np.array(table.pop("run"), dtype=object)
    order = np.argsort(table["index"], kind="stable")
    found: dict[str, dict[str, Column]] = {}
    for run in runs:
        if run.finished:
            own = order[owner[order] == run.name]
            found[run.name] = {name: values[own] for name, values in table.items()}
    first = next(iter(found))
    for name, columns in found.items():
        _require_same_texts(path, first, found[first], name, columns)
    return found[first]["label"], found


def _read_parquet(path: Path) -> dict[str, Column]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `attnlight study` first.") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} is not a readable parquet file: {error}.") from None
    for name in ("run", "index", "label", "prediction"):
        if name not in table.column_names:
            raise InputError(f"{path} has no column {name}: collect the study again.")
    columns: dict[str, Column] = {"run": table["run"].cast(pa.string()).to_pylist()}
    for name in table.column_names:
        if name in ("index", "label", "prediction"):
            columns[name] = table[name].fill_null(-1).to_numpy().astype(np.int64)
        elif name != "run":
            columns[name] = table[name].to_numpy().astype(np.float64)
    return columns


def _require_same_texts(
    path: Path, first: str, columns: Mapping[str, Column], name: str, other: Mapping[str, Column]
) -> None:
    if not len(other["index"]):
        raise InputError(f"{path} holds no rows of {name}, which is finished: collect it again.")
    if len(np.unique(other["index"])) < len(other["index"]):
        raise InputError(f"{path} holds a text of {name} twice.")
    for key in ("index", "label"):
        if not np.array_equal(columns[key], other[key]):
            raise InputError(f"{path} holds other texts of {name} than of {first}.")
