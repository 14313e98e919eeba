"""A study as the report reads it: a frame of its runs, and one of what each says of the test split."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.problems.words import Words

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
TARGETS = {
    "tokens": "the chunk tag of every token",
    "marked": "the chunk tag of one marked token of a sentence",
    "sentence": "whether a sentence has a chunk of one type",
}
FULL = "full"  # the context of a probe that has the base's encoder
_WHOLE = ("label", "prediction")
_TEXTS = ("role", "base", "guide", "guided_by", "context", "term", "state")
_NUMBERS = ("head", "lam", "epoch", "epochs", "ignorant")


@dataclass(frozen=True, eq=False)
class Study:
    """What a study planned and what came of it.

    Attributes:
        name: The study's name.
        experiment: The experiment that its base is of.
        corpus: The corpus.
        classes: Names of the classes.
        words: What pages call its instances, its quality and its guided models.
        selected: Term and lambda of the adversary that validation chose; None before it can.
        best: Lambda that validation chose of each attention term, where the study says.
        facts: What else `study.json` says of it: `options` (its condition), `target`, `readout`,
            `pos`.
        runs: One row per planned run, by name: `role`, `seed`, `base`, `guide`, `guided_by`,
            `context`, `head`, `term`, `lam`, `state`, `epoch` (from 0), `epochs`, `ignorant` (loss
            in nats of knowing only how frequent labels are), `frontier` (TVD and JS of its corners),
            `model` (the trained model that the run counts for: that which guides it, else itself)
            and `validation_<measure>`. What does not apply is null.
        measures: One row per finished run and test cluster, by `run` and `index`, both ascending;
            NaN where undefined, -1 for no label.
    """

    name: str
    experiment: str
    corpus: str
    classes: Sequence[str]
    words: Words
    selected: tuple[str, float] | None
    best: Mapping[str, float]
    facts: Mapping[str, Any]
    runs: Runs
    measures: pd.DataFrame

    @property
    def bases(self) -> list[str]:
        """The bases; runs that need a single base use the first."""
        return list(self.planned("base").index)

    @property
    def quality(self) -> str:
        """The measure of quality."""
        return ACCURACY if self.words.quality == ACCURACY else F1

    @property
    def losses(self) -> bool:
        """Whether the study holds the losses of its models."""
        return "nll_gold" in self.measures

    @cached_property
    def tested(self) -> pd.Index:
        """Names of the finished runs in the order of `measures`."""
        return self.measures.index.unique(level="run")

    @property
    def clusters(self) -> int:
        """Number of test texts or sentences n."""
        return len(self.measures) // len(self.tested)

    @property
    def heads(self) -> int:
        """Of how many heads there is a divergence from the base's."""
        return sum(str(name).startswith("attention_js_heads_") for name in self.measures)

    def planned(self, role: str, **which: object) -> Runs:
        """The runs of a role, of those whose columns are as given; None: null."""
        kept = self.runs["role"] == role
        for column, value in which.items():
            held = self.runs[column]
            kept &= held.isna() if value is None else held == value
        return self.runs[kept]

    def finished(self, role: str, **which: object) -> Runs:
        """The finished ones of `planned`."""
        found = self.planned(role, **which)
        return found[found["state"] == FINISHED]

    def itself(self, base: str) -> Runs:
        """A base as a group of one run, empty where it is not finished."""
        found = self.runs.loc[[base]]
        return found[found["state"] == FINISHED]

    def architecture(self, base: str) -> Runs:
        """A base with its seed variants: one architecture over several seeds."""
        return self.runs.loc[[*self.itself(base).index, *self.finished("seed", base=base).index]]

    def controls(self, base: str, term: str | None = None) -> Runs:
        """Imitations without a divergence term, lambda 0, where the term makes no difference.

        Those planned for the term where there are any, else those of any term.
        """
        every = self.finished("adversary", base=base, lam=0.0)
        own = every[every["term"] == term]
        return own if len(own) else every

    def values(self, runs: Runs, column: str) -> NDArray[Any]:
        """A column of some finished runs, (S, n); NaN where the study does not have it."""
        if column not in self.measures:
            return np.full((len(runs), self.clusters), np.nan)
        held: NDArray[Any] = self.measures[column].to_numpy().reshape(len(self.tested), -1)
        found: NDArray[Any] = held[self.tested.get_indexer(runs.index)]
        return found


def validation(runs: Runs, measure: str) -> NDArray[np.float64]:
    """A measure of some runs on the validation split, (S,), NaN where the study does not say."""
    name = f"validation_{measure}"
    return runs[name].to_numpy(float) if name in runs else np.full(len(runs), np.nan)


def read_study(folder: Path) -> Study:
    """Read `study.json` and `study.parquet` of a study's folder.

    Raises:
        InputError: A file is missing or damaged or of another schema, the two do not belong
            together, or no run is finished yet.
    """
    path, held = folder / FILE, _read_json(folder / FILE)
    try:
        runs = _runs(held["runs"])
        selected = held["selected"] and (
            held["selected"]["term"],
            float(held["selected"]["lambda"]),
        )
        best = {str(t): float(of["lambda"]) for t, of in (held.get("best") or {}).items() if of}
        name, experiment, corpus = (str(held[key]) for key in ("study", "experiment", "corpus"))
        classes = [str(name) for name in held["classes"]]
        words = _words(held, classes)
    except KeyError as error:
        raise InputError(f"{path} has no key {error.args[0]!r}: collect the study again.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is not as `attnlight study` writes it: {error}.") from None
    _require_runs(path, runs)
    facts = {key: held.get(key) for key in ("options", "target", "readout", "pos")}
    if facts["target"] not in (None, *TARGETS):
        known = ", ".join(TARGETS)
        raise InputError(f"{path} has the target {facts['target']!r}, not one of {known}.")
    if held.get("task") == "tagging":  # in the first format a probe may say nothing of its encoder
        runs.loc[(runs["role"] == "guide") & runs["context"].isna(), "context"] = FULL
    measures = _read_measures(folder / ROWS, runs.index[runs["state"] == FINISHED])
    return Study(
        name, experiment, corpus, classes, words, selected or None, best, facts, runs, measures
    )


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


def _words(held: Mapping[str, Any], classes: Sequence[str]) -> Words:
    """The words of a study, also of one of the first format, which does not name its problem."""
    if held.get("problem"):
        return Words(**{key: str(word) for key, word in dict(held["problem"]).items()})
    if held.get("task") == "tagging":
        chunks = held.get("target") == "tokens"
        quality, criterion = ("chunk F1", "chunk F1") if chunks else (ACCURACY, "macro F1")
        return Words("tagging", "token", "sentence", quality, criterion, "a tagger")
    quality = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
    return Words("classification", "text", "text", quality, quality, "an MLP")


def _runs(entries: Sequence[Mapping[str, Any]]) -> Runs:
    """The frame of runs from the entries of `study.json`."""
    import pandas as pd

    renamed = {"guided_by": "told_by", "lam": "lambda"}
    names, rows = [str(entry["name"]) for entry in entries], []
    for name, entry in zip(names, entries, strict=True):
        row: dict[str, Any] = {"seed": int(entry["seed"])}
        row |= {key: str(entry[key]) for key in ("role", "state")}
        row |= {k: entry.get(renamed.get(k, k)) for k in (*_TEXTS, *_NUMBERS) if k not in row}
        corners = entry.get("frontier") or {"tvd": []}
        row["frontier"] = (corners["tvd"], corners["js"]) if corners["tvd"] else None
        guided = row["guide"] in GUIDED_BY_RUNS
        row["model"] = (row["guided_by"] or row["guide"]) if guided else name
        measured = (entry.get("validation") or {}).items()
        rows.append(row | {f"validation_{k}": v for k, v in measured if not isinstance(v, list)})
    frame = pd.DataFrame(rows, index=pd.Index(names, name="run"))
    numbers = [name for name in frame if name in _NUMBERS or str(name).startswith("validation_")]
    return frame.astype(dict.fromkeys(numbers, float))


def _require_runs(path: Path, runs: Runs) -> None:
    """Names become parts of file names, and roles decide what a run counts for."""
    if not len(runs) or "base" not in set(runs["role"]):
        raise InputError(f"{path} names no base.")
    if not runs.index.is_unique:
        raise InputError(f"{path} names a run twice.")
    for name, role in runs["role"].items():
        if not re.fullmatch(r"[\w.+-]*[\w+-]", str(name)):
            raise InputError(f"{path} names a run {name!r}, which is no name of a folder.")
        if role not in ROLES:
            raise InputError(f"{path} gives {name} the role {role!r}, not one of {ROLES}.")
    if FINISHED not in set(runs["state"]):
        raise InputError(f"{path} names no finished run: run `attnlight study` first.")


def _read_measures(path: Path, finished: pd.Index) -> pd.DataFrame:
    """The rows of the finished runs.

    Raises:
        InputError: The file is missing, damaged or lacks a column, or its rows are not those of one
            set of texts for each finished run.
    """
    import pandas as pd
    import pyarrow as pa

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
            columns |= _split(path, name, table[name])
        elif name != "run":
            columns[name] = table[name].to_numpy().astype(np.float64)
    frame = pd.DataFrame(columns)
    frame = frame[frame["run"].isin(finished)].set_index(["run", "index"]).sort_index()
    _require_same_texts(path, frame, finished)
    return frame


def _split(path: Path, name: str, lists: Any) -> dict[str, NDArray[np.float64]]:  # noqa: ANN401
    """A column of lists that are null or equally long as one column for each place."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(lists).to_numpy()  # NaN of null
    there = ~np.isnan(lengths)
    sizes = np.unique(lengths[there]).astype(int).tolist()
    if len(sizes) > 1:
        raise InputError(f"{path} has lists of {sizes} values in {name}: collect the study again.")
    filled = np.full((len(lengths), *sizes), np.nan)
    filled[there] = pc.list_flatten(lists).to_numpy().reshape(-1, *sizes)
    return {f"{name}_{place}": filled[:, place] for place in range(sum(sizes))}


def _require_same_texts(path: Path, frame: pd.DataFrame, finished: pd.Index) -> None:
    if not frame.index.is_unique:
        name = frame.index[frame.index.duplicated()][0][0]
        raise InputError(f"{path} holds a text of {name} twice.")
    first: Any = None
    for name in finished:
        if name not in frame.index:
            raise InputError(
                f"{path} holds no rows of {name}, which is finished: collect it again."
            )
        own = frame.loc[name]
        own = own[["label"]] if "label" in own else own[[]]
        first = own if first is None else first
        if not own.equals(first):
            raise InputError(f"{path} holds other texts of {name} than of {finished[0]}.")
