"""A study as the report reads it: a frame of runs, and a frame of measures by test cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from attnlight.errors import InputError
from attnlight.problems import Words
from attnlight.records.parquet import read_table
from attnlight.report.study.texts import texts
from attnlight.statistics.collapse import collapse_threshold
from attnlight.storage.files import read_json
from attnlight.storage.migration import unmigrated

Runs: TypeAlias = pd.DataFrame
SCHEMA = 1
FILE, ROWS = "study.json", "study.parquet"
FINISHED = "finished"
ROLES = ("base", "uniform", "seed", "guide", "adversary")
ROAR = "roar"  # role of models trained without some words
GUIDED_BY_RUNS = ("adversary", "other")  # guides that are runs of the study other than its base
GUIDED_BY_BASE = ("base", "shuffled")
F1, ACCURACY = "f1", "accuracy"
INSTANCES = ("instances", "tokens")  # column that counts the predictions of a cluster
_INTEGERS = ("label", "prediction")
_COLUMNS = ("role", "seed", "state", "base", "guide", "context", "term", "model", "frontier")
_VALIDATION = ("validation_attention_js", "validation_nll_base")
_NUMBERS = ("head", "lam", "share", "epoch", "epochs", "ignorant", *_VALIDATION)


@dataclass(frozen=True, eq=False)
class Study:
    """The plan of a study and its results."""

    name: str  # the study's name
    experiment: str  # the experiment of its base
    corpus: str  # the corpus
    classes: Sequence[str]  # names of the classes
    words: Words  # names of its instances, its quality and its guided models in the report
    quality: str  # the measure of quality
    # Term and lambda of the adversary chosen on validation; None before the choice.
    selected: tuple[str, float] | None
    # Lambda chosen on validation for each attention term, if the study has it.
    best: Mapping[str, float]
    # Other facts from `study.json`: `options` (its condition), `target`, `readout`, `pos`.
    facts: Mapping[str, Any]
    bases: Sequence[str]  # the bases; runs that need a single base use the first
    # One row per planned run, by name: `role`, `seed`, `base` (for a base its own name), `guide`,
    # `context`, `head`, `term`, `lam`, `method` and `share` (of removed words), `state`, `epoch`
    # (from 0), `epochs`, `ignorant` (entropy of the labels in nats: the loss of predicting class
    # frequencies), `frontier` (TVD and JS of its corners), `model` (the trained model that the run
    # counts for: its guide if that is a run, else itself), `validation_attention_js`,
    # `validation_nll_base`, `collapsed` (the loss is not finite or above `threshold`), and for a
    # base `threshold` (nats) and `threshold_error` (why there is none). Null where not applicable.
    runs: Runs
    # One row per finished run and test cluster, by `run` and `index`, both ascending; NaN where
    # undefined, -1 for no label.
    measures: pd.DataFrame
    _selections: dict[tuple[object, ...], Runs] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def losses(self) -> bool:
        """Whether the study recorded the losses of its models."""
        return "nll_gold" in self.measures

    def planned(self, *roles: str, **which: object) -> Runs:
        """The planned runs of some roles whose columns equal `which`; None selects null.

        Frames that are asked for again are shared: they must not be changed in place.
        """
        key = roles, *sorted(which.items())
        if key not in self._selections:
            mask = self.runs["role"].isin(roles)
            for column, value in which.items():
                values = self.runs[column]
                mask &= values.isna() if value is None else values == value
            self._selections[key] = self.runs[mask]
        return self._selections[key]

    def finished(self, *roles: str, **which: object) -> Runs:
        """The finished runs among `planned`."""
        return self.planned(*roles, state=FINISHED, **which)

    def controls(self, base: str, term: str | None = None) -> Runs:
        """Finished runs at lambda 0: trained to imitate the base without a divergence term.

        The runs planned for the term if there are any, else those of all terms.
        """
        controls = self.finished("adversary", base=base, lam=0.0)
        of_term = controls[controls["term"] == term]
        return of_term if len(of_term) else controls


def read_study(folder: Path) -> Study:
    """Read `study.json` and `study.parquet` of a study's folder.

    Raises:
        InputError: A file is missing or damaged or of another schema, the two do not belong
            together, or no run is finished yet.
    """
    path = folder / FILE
    if not path.exists():
        raise InputError(f"{path} is missing: run `attnlight study` first.")
    content = read_json(path)
    if content.get("schema") != SCHEMA:
        found = content.get("schema")
        raise InputError(f"{path} is of schema {found}; this version reads schema {SCHEMA}.")
    if "problem" not in content or "compat" in (content.get("best") or {}):
        raise unmigrated(path)
    try:
        runs = _read_runs(path, content["runs"])
        head = (content["study"], content["experiment"], content["corpus"], content["classes"])
        words, selected = Words(**content["problem"]), content["selected"] or None
        if selected:
            selected = selected["term"], float(selected["lambda"])
        entries = content.get("best") or {}
        best = {str(term): float(entry["lambda"]) for term, entry in entries.items() if entry}
    except KeyError as error:
        raise InputError(f"{path} has no key {error.args[0]!r}: collect the study again.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is not as `attnlight study` writes it: {error}.") from None
    facts = {key: content.get(key) for key in ("options", "target", "readout", "pos")}
    if facts["target"] not in (None, *texts()["targets"]):
        choices = ", ".join(texts()["targets"])
        raise InputError(f"{path} has the target {facts['target']!r}, not one of {choices}.")
    quality = ACCURACY if words.quality == ACCURACY else F1
    bases = list(runs.index[runs["role"] == "base"])
    measures = _read_measures(folder / ROWS, list(runs.index[runs["state"] == FINISHED]))
    return Study(*head, words, quality, selected, best, facts, bases, runs, measures)


def _read_runs(path: Path, entries: Sequence[Mapping[str, Any]]) -> Runs:
    """The frame of runs from the entries of `study.json`; collapses follow from losses on validation."""
    rows: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name, _, role, _ = (entry[key] for key in ("name", "seed", "role", "state"))
        if not re.fullmatch(r"[\w.+-]*[\w+-]", name):
            raise InputError(f"{path} names a run {name!r}, which is not a folder name.")
        if name in rows:
            raise InputError(f"{path} names a run twice.")
        if role not in (*ROLES, ROAR):
            raise InputError(f"{path} gives {name} the role {role!r}, not one of {ROLES}.")
        guide, corners = entry.get("guide"), entry.get("frontier") or {"tvd": []}
        model = (entry.get("told_by") or guide) if guide in GUIDED_BY_RUNS else name
        derived = {"base": name if role == "base" else entry.get("base"), "model": model}
        derived["frontier"] = (corners["tvd"], corners["js"]) if corners["tvd"] else None
        rows[name] = {**entry, **derived, "lam": entry.get("lambda")}
    if not any(row["role"] == "base" for row in rows.values()):
        raise InputError(f"{path} names no base.")
    if not any(row["state"] == FINISHED for row in rows.values()):
        raise InputError(f"{path} names no finished run: run `attnlight study` first.")
    frame = pd.json_normalize(list(rows.values()), sep="_").set_index(pd.Index(rows, name="run"))
    frame = frame.reindex(columns=[*_COLUMNS, "method", *_NUMBERS])
    runs = frame.astype(dict.fromkeys(_NUMBERS, float))
    runs = runs.assign(collapsed=False, threshold=np.nan, threshold_error=None)
    finished = runs[(runs["role"] == "adversary") & (runs["state"] == FINISHED)]
    for base, ignorant in runs.loc[runs["role"] == "base", "ignorant"].items():
        adversaries = finished[finished["base"] == base]
        lambdas, losses = adversaries["lam"], adversaries["validation_nll_base"]
        try:
            if np.isnan(ignorant):
                raise InputError("the study lacks the label entropy")
            threshold = collapse_threshold(lambdas.to_numpy(), losses.to_numpy(), ignorant)
        except InputError as error:
            runs.at[base, "threshold_error"] = str(error).rstrip(".")
            continue
        runs.at[base, "threshold"] = threshold
        collapsed = ~np.isfinite(losses) | (losses > threshold)
        runs.loc[adversaries.index[collapsed], "collapsed"] = True
    return runs


def _read_measures(path: Path, finished: Sequence[str]) -> pd.DataFrame:
    """The rows of the finished runs, with each list column split into one column per position."""
    if not path.exists():
        raise InputError(f"{path} is missing: run `attnlight study` first.")
    table = read_table(path)
    names = table.column_names
    counted = [next((name for name in INSTANCES if name in names), INSTANCES[-1])]
    for name in ("run", "index", *(counted if "correct" in names else _INTEGERS)):
        if name not in names:
            raise InputError(f"{path} has no column {name}: collect the study again.")
    columns: dict[str, Any] = {"run": table["run"].cast(pa.string()).to_numpy()}
    for name in names:
        if name in ("index", *_INTEGERS):
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
    kept = frame.reset_index("index")[["index", *({"label"} & set(frame))]]
    clusters = {name: rows.to_numpy() for name, rows in kept.groupby(level="run")}
    for name in finished:
        if name not in clusters:
            raise InputError(f"{path} holds no rows of {name}, a finished run: collect it again.")
        if not np.array_equal(clusters[name], clusters[finished[0]]):
            raise InputError(f"{path} holds other texts of {name} than of {finished[0]}.")
    return frame
