"""The instances of one split as a run's records hold them, and sums over the texts they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.problems import problem_class
from attnlight.problems.base import Places
from attnlight.records import EXCLUDED, KEY, Record, RecordError, read_record
from attnlight.studies.argv import DIVERGENCE, PREDICTIONS, Stage, attached
from attnlight.studies.plan import PlannedRun
from attnlight.studies.state import StudyFolder

Floats = NDArray[np.float64]
COMPARED = (
    "attention_js",
    "attention_js_mean",
    "attention_js_share",
    "attention_tau",
    "prediction_tvd",
)
HEADS = "attention_js_heads"
# What float32 holds as 0 is taken for the least that it can hold: a loss of 103 nats.
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Instances:
    """R instances of a split, those of a text one after the other.

    Attributes:
        columns: Those of its predictions, (R,) or (R, K), NaN where a value is null; `index` is the
            dataset row of the text, ascending.
        label: True class of each, (R,), -1 where it has none.
        prediction: Predicted class of each, (R,), -1 where it was not measured.
        classes: Names of the classes.
        divergence: Columns of `BaseDivergence`, (R,) or (R, H), NaN where undefined; none of a base.
        starts: Place of the first instance of each of S texts, (S,).
        places: Where the chunks start that the problem counts: those of the labels, of the
            predictions, and of both; None where it counts nothing.
        clustered: Whether an instance is a part of a text, not a text of its own.
    """

    columns: Mapping[str, NDArray[Any]]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    classes: Sequence[str]
    divergence: Mapping[str, NDArray[Any]]
    starts: NDArray[np.int64]
    places: Places | None
    clustered: bool

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether each was measured, (R,)."""
        return np.not_equal(self.prediction, EXCLUDED)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each was measured and its prediction is its label, (R,)."""
        return self.measured & np.equal(self.prediction, self.label)

    def losses(self, classes: NDArray[np.int64]) -> Floats:
        """Negative log-likelihood in nats of a class of each, (R,), NaN where it is -1.

        Args:
            classes: The classes, (R,).
        """
        rows = len(classes)
        unknown = np.full((rows, len(self.classes)), np.nan)
        probability = self.columns.get("probabilities", unknown)[np.arange(rows), classes]
        losses = -np.log(np.maximum(probability.astype(np.float64), _LEAST))
        return np.where(classes < 0, np.nan, losses)

    def compared(self) -> dict[str, NDArray[Any]]:
        """Distances from the base, (R,) or (R, H), NaN where undefined; none of a base itself."""
        if not self.divergence:
            return {}
        unknown = np.full(len(self.label), np.nan)
        found: dict[str, NDArray[Any]] = {k: self.divergence.get(k, unknown) for k in COMPARED}
        if HEADS not in self.divergence:  # one head, or nothing was measured
            found["attention_js_mean"] = found["attention_js"]
        base = known_classes(self.divergence.get("base_prediction", unknown))
        return found | {
            HEADS: self.divergence.get(HEADS, found["attention_js"][:, None]),
            "nll_base": self.losses(base),
            "agree": self.measured & (self.prediction == base),
        }

    def sums(self) -> dict[str, NDArray[Any]]:
        """Counts and sums of defined values over the instances of each text, (S,) or (S, H)."""
        values: dict[str, NDArray[Any]] = {
            "tokens": self.measured,
            "correct": self.correct,
            "nll_gold": self.losses(self.label),
            **dict(zip(("gold", "found", "matched"), self.places or (), strict=False)),
        }
        if compared := self.compared():
            values |= compared
            values["choices"] = ~np.isnan(compared["attention_js_share"])
            values["tau_rows"] = ~np.isnan(compared["attention_tau"])
        found = {"index": self.columns["index"][self.starts]}
        for name, column in values.items():
            numbers = column.astype(np.int64 if column.dtype == bool else np.float64)
            defined = np.where(np.isnan(column), 0, numbers)
            found[name] = np.add.reduceat(defined, self.starts, axis=0)
        return found


def known_classes(classes: NDArray[Any]) -> NDArray[np.int64]:
    """Classes with -1 where a record has none."""
    return np.where(np.isnan(classes), -1, classes).astype(np.int64)


def read_instances(folder: StudyFolder, run: PlannedRun, stage: Stage) -> Instances:
    """The instances of a split at the best epoch of a finished run.

    Where an instance is a part of a text, it takes its label from the base's record: that of the run
    itself is null where it was not measured.

    Args:
        folder: The study's folder.
        run: The run.
        stage: The split.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other instances than that of the base.
    """
    study, path = folder.study, folder.record(run.name, stage, PREDICTIONS)
    record = labels = read_record(path)
    index, prediction = (record.columns[name] for name in ("index", "prediction"))
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1))
    clustered = study.clustered or len(starts) < len(index)
    divergence: Mapping[str, NDArray[Any]] = {}
    if DIVERGENCE in attached(run):
        own = read_record(folder.record(run.name, stage, DIVERGENCE))
        divergence = _same_rows(own, record, path).columns
        if clustered:
            other = folder.record(str(run.base), stage, PREDICTIONS)
            labels = _same_rows(read_record(other, [*KEY, "label"]), record, path)
    if "label" not in labels.columns:
        raise RecordError(f"{path}: no instance has a label, or none was measured.")
    label, classes = known_classes(labels.columns["label"]), record.metadata["classes"]
    count = problem_class(study.problem).count(study.target or "tokens")
    places = None if count is None else count(label, prediction, starts, classes)
    return Instances(
        record.columns, label, prediction, classes, divergence, starts, places, clustered
    )


def _same_rows(record: Record, other: Record, path: Path) -> Record:
    if not all(np.array_equal(record.columns[key], other.columns[key]) for key in KEY):
        raise InputError(f"{path} holds other rows than the records beside it: test it anew.")
    return record
