"""A study as the report reads it: a frame of runs, and one of their measures by test cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlight import compatibility
from attnlight.errors import InputError
from attnlight.problems.words import Words
from attnlight.report.study.texts import texts
from attnlight.statistics.collapse import collapse_share

if TYPE_CHECKING:
    from typing import TypeAlias

    import pandas as pd

    Runs: TypeAlias = pd.DataFrame

SCHEMA = 1
FILE, ROWS = "study.json", "study.parquet"
FINISHED = "finished"
ROLES = ("base", "uniform", "seed", "guide", "adversary")
GUIDED_BY_RUNS = ("adversary", "other")  # guides that are runs of the study other than its base
F1, ACCURACY = "f1", "accuracy"
INSTANCES = ("instances", "tokens")  # column that counts the predictions of a cluster
_WHOLE = ("label", "prediction")
_COLUMNS = ("role", "seed", "state", "base", "guide", "context", "term", "model", "frontier")
_VALIDATION = ("validation_attention_js", "validation_nll_base")
_NUMBERS = ("head", "lam", "epoch", "epochs", "ignorant", *_VALIDATION)


@dataclass(frozen=True, eq=False)
class Study:
    """What a study planned and what came of it.

    Attributes:
        name: The study's name.
        experiment: The experiment that its base is of.
        corpus: The corpus.
        classes: Names of the classes.
        words: What pages call its instances, its quality and its guided models.
        quality: The measure of quality.
        selected: Term and lambda of the adversary that validation chose; None before it can.
        best: Lambda that validation chose of each attention term, where the study says.
        facts: What else `study.json` says of it: `options` (its condition), `target`, `readout`,
            `pos`.
        bases: The bases; runs that need a single base use the first.
        runs: One row per planned run, by name: `role`, `seed`, `base` (its own name of a base),
            `guide`, `context`, `head`, `term`, `lam`, `state`, `epoch` (from 0), `epochs`,
            `ignorant` (loss in nats of knowing only how frequent labels are), `frontier` (TVD and
            JS of its corners), `model` (the trained model that the run counts for: that which
            guides it, else itself), `validation_attention_js` and `validation_nll_base`,
            `collapsed`, and of a base `threshold` and `unknown`. What does not apply is null.
        measures: One row per finished run and test cluster, by `run` and `index`, both ascending;
            NaN where undefined, -1 for no label.
    """

    name: str
    experiment: str
    corpus: str
    classes: Sequence[str]
    words: Words
    quality: str
    selected: tuple[str, float] | None
    best: Mapping[str, float]
    facts: Mapping[str, Any]
    bases: Sequence[str]
    runs: Runs
    measures: pd.DataFrame

    @property
    def losses(self) -> bool:
        """Whether the study holds the losses of its models."""
        return "nll_gold" in self.measures

    def planned(self, *roles: str, **which: object) -> Runs:
        """The runs of some roles, of those whose columns are as given; None: null."""
        kept = self.runs["role"].isin(roles)
        for column, value in which.items():
            held = self.runs[column]
            kept &= held.isna() if value is None else held == value
        return self.runs[kept]

    def finished(self, *roles: str, **which: object) -> Runs:
        """The finished ones of `planned`."""
        return self.planned(*roles, state=FINISHED, **which)

    def controls(self, base: str, term: str | None = None) -> Runs:
        """Imitations without a divergence term, lambda 0, where the term makes no difference.

        Those planned for the term where there are any, else those of any term.
        """
        every = self.finished("adversary", base=base, lam=0.0)
        own = every[every["term"] == term]
        return own if len(own) else every


def read_study(folder: Path) -> Study:
    """Read `study.json` and `study.parquet` of a study's folder.

    Raises:
        InputError: A file is missing or damaged or of another schema, the two do not belong
            together, or no run is finished yet.
    """
    path = folder / FILE
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `attnlight study` first.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from None
    schema = held.get("schema") if isinstance(held, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} is of schema {schema}; this version reads schema {SCHEMA}.")
    try:
        held = compatibility.study(held)
        runs = _read_runs(path, held["runs"])
        about = (held["study"], held["experiment"], held["corpus"], held["classes"])
        words, selected = Words(**held["problem"]), held["selected"] or None
        if selected:
            selected = selected["term"], float(selected["lambda"])
        best = {str(t): float(of["lambda"]) for t, of in (held.get("best") or {}).items() if of}
    except KeyError as error:
        raise InputError(f"{path} has no key {error.args[0]!r}: collect the study again.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is not as `attnlight study` writes it: {error}.") from None
    facts = {key: held.get(key) for key in ("options", "target", "readout", "pos")}
    if facts["target"] not in (None, *texts()["targets"]):
        known = ", ".join(texts()["targets"])
        raise InputError(f"{path} has the target {facts['target']!r}, not one of {known}.")
    quality = ACCURACY if words.quality == ACCURACY else F1
    bases = list(runs.index[runs["role"] == "base"])
    measures = _read_measures(folder / ROWS, list(runs.index[runs["state"] == FINISHED]))
    return Study(*about, words, quality, selected, best, facts, bases, runs, measures)


def _read_runs(path: Path, entries: Sequence[Mapping[str, Any]]) -> Runs:
    """The frame of runs from the entries of `study.json`.

    Raises:
        InputError: A name is no name of a folder, for names become parts of file names, or stands
            twice; a role is unknown; there is no base or no finished run.
    """
    import pandas as pd

    rows: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name, _, role, _ = (entry[key] for key in ("name", "seed", "role", "state"))
        if not re.fullmatch(r"[\w.+-]*[\w+-]", name):
            raise InputError(f"{path} names a run {name!r}, which is no name of a folder.")
        if name in rows:
            raise InputError(f"{path} names a run twice.")
        if role not in ROLES:
            raise InputError(f"{path} gives {name} the role {role!r}, not one of {ROLES}.")
        guide, corners = entry.get("guide"), entry.get("frontier") or {"tvd": []}
        model = (entry.get("told_by") or guide) if guide in GUIDED_BY_RUNS else name
        found = {"base": name if role == "base" else entry.get("base"), "model": model}
        found["frontier"] = (corners["tvd"], corners["js"]) if corners["tvd"] else None
        rows[name] = {**entry, **found, "lam": entry.get("lambda")}
    if not any(row["role"] == "base" for row in rows.values()):
        raise InputError(f"{path} names no base.")
    if not any(row["state"] == FINISHED for row in rows.values()):
        raise InputError(f"{path} names no finished run: run `attnlight study` first.")
    frame = pd.json_normalize(list(rows.values()), sep="_").set_index(pd.Index(rows, name="run"))
    frame = frame.reindex(columns=[*_COLUMNS, *_NUMBERS])
    return _mark_collapses(frame.astype(dict.fromkeys(_NUMBERS, float)))


def _mark_collapses(runs: Runs) -> Runs:
    """The runs with what adversaries collapsed, judged by the loss on validation.

    A finished run whose loss the study does not have had no finite one.

    Returns:
        With `collapsed`, bool, and of each base `threshold`, the loss in nats above which an
        adversary has collapsed, and `unknown`, why that cannot be told.
    """
    runs = runs.assign(collapsed=False, threshold=np.nan, unknown=None)
    finished = runs[(runs["role"] == "adversary") & (runs["state"] == FINISHED)]
    for base, ignorant in runs.loc[runs["role"] == "base", "ignorant"].items():
        own = finished[finished["base"] == base]
        lambdas, losses = own["lam"], own["validation_nll_base"]
        try:
            if np.isnan(ignorant):
                raise InputError("the study does not say what knowing nothing loses")
            found = collapse_share(lambdas.to_numpy(), losses.to_numpy(), ignorant)
        except InputError as error:
            runs.at[base, "unknown"] = str(error).rstrip(".")
            continue
        runs.at[base, "threshold"] = found.threshold
        runs.loc[own.index[~np.isfinite(losses) | (losses > found.threshold)], "collapsed"] = True
    return runs


def _read_measures(path: Path, finished: Sequence[str]) -> pd.DataFrame:
    """The rows of the finished runs, a column of lists as one column for each place.

    Raises:
        InputError: The file is missing, damaged or lacks a column, or its rows are not those of one
            set of texts for each finished run.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    from attnlight.records.parquet import read_table

    if not path.exists():
        raise InputError(f"{path} is missing: run `attnlight study` first.")
    table = read_table(path)
    names = table.column_names
    counted = [next((name for name in INSTANCES if name in names), INSTANCES[-1])]
    for name in ("run", "index", *(counted if "correct" in names else _WHOLE)):
        if name not in names:
            raise InputError(f"{path} has no column {name}: collect the study again.")
    columns: dict[str, Any] = {"run": table["run"].cast(pa.string()).to_numpy()}
    for name in names:
        if name in ("index", *_WHOLE):
            columns[name] = table[name].fill_null(-1).to_numpy().astype(np.int64)
        elif pa.types.is_list(table.schema.field(name).type):
            sizes = pc.list_value_length(table[name]).drop_null().unique().sort().to_pylist()
            if len(sizes) > 1:
                raise InputError(f"{path} has lists of {sizes} values in {name}: collect it again.")
            for place in range(sum(sizes)):
                columns[f"{name}_{place}"] = pc.list_element(table[name], place).to_numpy()
        elif name != "run":
            columns[name] = table[name].to_numpy().astype(np.float64)
    frame = pd.DataFrame(columns).set_index(["run", "index"]).sort_index()
    frame = frame[frame.index.isin(finished, level="run")]
    if not frame.index.is_unique:
        name = frame.index[frame.index.duplicated()][0][0]
        raise InputError(f"{path} holds a text of {name} twice.")
    clusters = frame.reset_index("index")[["index", *({"label"} & set(frame))]]
    for name in finished:
        if name not in clusters.index:
            raise InputError(f"{path} holds no rows of {name}, a finished run: collect it again.")
        if not np.array_equal(clusters.loc[[name]], clusters.loc[[finished[0]]]):
            raise InputError(f"{path} holds other texts of {name} than of {finished[0]}.")
    return frame
