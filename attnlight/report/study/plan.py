"""What a study planned, as `study.json` says it: its runs, and how they are found."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlight.errors import InputError

SCHEMA = 1
FILE = "study.json"
FINISHED = "finished"
ROLES = ("base", "uniform", "seed", "guide", "adversary")
GUIDED_BY_RUNS = ("adversary", "other")  # guides that are runs of the study other than its base


@dataclass(frozen=True)
class StudyRun:
    """One run that the study plans.

    Attributes:
        name: Its folder within the study.
        role: One of `ROLES`.
        seed: Its seed.
        base: The run that it is made from; None for a base.
        guide: Whose attention guides it; None where its role is another.
        guided_by: The run whose attention guides it, where that is neither the base nor fixed.
        context: What a guided tagger reads; None for all others.
        head: The head of a tagger that is uniform alone; None where all are, or the role is another.
        term: The attention term of an adversary: `kl`, `js`, `tvd`, or `compat`, KL on the scale of
            Yang's released code.
        lam: The weight of that term.
        state: `finished`, `failed` or `missing`.
        epoch: The epoch that validation chose, from 0; None where it has none yet.
        epochs: Number of epochs trained, where the study says.
        validation: Measures on the validation split at that epoch.
        ignorant: Of a tagger's base, the loss of knowing no more than how frequent its predicted
            labels are, in nats.
        frontier: Corners of a base's frontier: mean total variation distance, mean JS.
    """

    name: str
    role: str
    seed: int
    base: str | None = None
    guide: str | None = None
    guided_by: str | None = None
    context: str | None = None
    head: int | None = None
    term: str | None = None
    lam: float | None = None
    state: str = FINISHED
    epoch: int | None = None
    epochs: int | None = None
    validation: Mapping[str, Any] = field(default_factory=dict)
    ignorant: float | None = None
    frontier: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def finished(self) -> bool:
        """Whether the run's rows are in the study."""
        return self.state == FINISHED

    @property
    def model(self) -> str:
        """The trained model that a sentence about this run is about.

        It is the adversary or the other seed that guides it, else the run itself. Guided runs of a
        study that does not name their guides count as one model.
        """
        if self.guide in GUIDED_BY_RUNS:
            return self.guided_by or self.guide
        return self.name


@dataclass(frozen=True)
class Plan(ABC):
    """What a study planned.

    Attributes:
        name: The study's name.
        experiment: The experiment that its base is of.
        corpus: The corpus.
        classes: Names of the classes.
        selected: Term and lambda of the adversary that validation chose; None before it can.
        best: Lambda that validation chose of each attention term, where the study says.
        runs: Every run of the plan.
    """

    name: str
    experiment: str
    corpus: str
    classes: Sequence[str]
    selected: tuple[str, float] | None
    best: Mapping[str, float]
    runs: Sequence[StudyRun]

    @property
    @abstractmethod
    def f1(self) -> str:
        """What is called F1."""

    @property
    def criterion(self) -> str:
        """What validation chooses by, of adversaries that get far enough."""
        return self.f1

    @property
    def bases(self) -> list[StudyRun]:
        """The bases, of which the first is the base of all that has only one."""
        return self.planned("base")

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


def read_head(folder: Path) -> dict[str, Any]:
    """What `study.json` of a study's folder holds.

    Raises:
        InputError: The file is missing, no JSON, or of another schema.
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
    return dict(held)


def read_plan(folder: Path) -> dict[str, Any]:
    """The attributes of `Plan` from a study's folder, by name.

    Raises:
        InputError: The file is missing or damaged, or no run is finished yet.
    """
    path, held = folder / FILE, read_head(folder)
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
    found = {"name": name, "experiment": experiment, "corpus": corpus, "classes": classes}
    return found | {"selected": selected or None, "best": best, "runs": runs}


def _run(entry: Mapping[str, Any]) -> StudyRun:
    frontier, lam, ignorant = (entry.get(key) for key in ("frontier", "lambda", "ignorant"))
    return StudyRun(
        name=str(entry["name"]),
        role=str(entry["role"]),
        seed=int(entry["seed"]),
        base=entry.get("base"),
        guide=entry.get("guide"),
        guided_by=entry.get("told_by"),
        context=entry.get("context"),
        head=entry.get("head"),
        term=entry.get("term"),
        lam=None if lam is None else float(lam),
        state=str(entry["state"]),
        epoch=entry.get("epoch"),
        epochs=entry.get("epochs"),
        validation=entry.get("validation") or {},
        ignorant=None if ignorant is None else float(ignorant),
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
