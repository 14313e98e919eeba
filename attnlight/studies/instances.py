"""The instances of one split as a run's records hold them, their means, and sums over each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records import EXCLUDED, KEY, Record, RecordError, read_record
from attnlight.statistics.f1 import f1_by_class
from attnlight.studies.argv import DIVERGENCE, PREDICTIONS, Stage
from attnlight.studies.plan import PlannedRun
from attnlight.studies.selection import Measures
from attnlight.studies.state import StudyFolder

Columns = dict[str, NDArray[Any]]
_JS = ("attention_js", "attention_js_mean", "attention_js_share")
COMPARED = (*_JS, "attention_tau", "prediction_tvd")
MEANS = ("nll_gold", "nll_base", *COMPARED)  # of the instances of a split
HEADS = "attention_js_heads"
WORST_CASE = ("worst_js", "search_js", "search_tvd")
_COUNTED = ("gold", "found", "matched")
# What float32 holds as 0 is taken for the least that it can hold: a loss of 103 nats.
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Instances:
    """R instances of a split, those of a text one after the other.

    Attributes:
        columns: Columns of a run's records, (R,) or (R, K), NaN where a value is null; `index` is
            the dataset row of the text, ascending.
        label: True class of each, (R,), -1 where it has none.
        classes: Names of the classes.
        starts: Place of the first instance of each of S texts, (S,).
        values: What is counted and measured of each, (R,) or (R, H), NaN where undefined: `tokens`
            (whether it was measured), `correct`, `nll_gold` in nats; `gold`, `found`, `matched`
            (whether a chunk that the problem counts starts there: of the labels, of the predictions,
            of both) where it counts something; and of a variant `COMPARED`, `HEADS`, `agree`,
            `nll_base`, `choices` and `tau_rows` (whether share and tau are defined).
        clustered: Whether an instance is a part of a text, not a text of its own.
        worst_case: The record of worst-case attention of a base on test texts, where there is one.
    """

    columns: Columns
    label: NDArray[np.int64]
    classes: Sequence[str]
    starts: NDArray[np.int64]
    values: Columns
    clustered: bool
    worst_case: Record | None = None

    def measures(self) -> Measures:
        """Means over the instances.

        Returns:
            Of texts `accuracy`, `macro_f1`, `f1` (of the second of two classes, None for more),
            `attention_js` and `prediction_tvd`; of parts of texts `f1` (of what the problem counts,
            else the mean over classes), `accuracy`, `nll_gold`, `nll_base`, `COMPARED` and `HEADS`,
            a list. None where there is nothing to take a mean of. An instance that was not measured
            is a miss; a class that is neither a label nor predicted has no F1.
        """
        values, means = self.values, {}
        for name in (*MEANS, HEADS):
            columns = np.atleast_2d(values[name].T) if name in values else ()
            defined = [column[~np.isnan(column)] for column in columns]
            each = [float(column.mean(dtype=np.float64)) for column in defined if len(column)]
            means[name] = (each if name == HEADS else each[0]) if each else None
        found: Measures = {"accuracy": float(values["correct"].mean())}
        if "matched" in values:
            gold, predicted, both = (int(values[name].sum()) for name in _COUNTED)
            return found | {"f1": 2 * both / max(gold + predicted, 1)} | means
        classes = len(self.classes)
        by_class = f1_by_class(self.columns["prediction"], self.label, classes)
        f1 = float(np.nanmean(by_class))
        if self.clustered:
            return found | {"f1": f1} | means
        found |= {"macro_f1": f1, "f1": float(by_class[1]) if classes == 2 else None}
        return found | {name: means[name] for name in ("attention_js", "prediction_tvd")}

    def rows(self) -> Columns:
        """Columns of one row for each of S texts, (S,) or (S, H), without those that are unknown.

        They are sums of defined values over the instances of a text, or those of its only one.
        """
        import pandas as pd

        index = self.columns["index"]
        if self.clustered:
            found = {"index": index[self.starts]}
            for name, column in self.values.items():
                defined = np.where(np.isnan(column), 0.0, column.astype(np.float64))
                found[name] = np.add.reduceat(defined, self.starts, axis=0)
            return found
        if self.worst_case is None:
            return self.columns
        held = self.worst_case.columns
        table = pd.DataFrame({n: held[n] for n in WORST_CASE if n in held}, held["index"])
        table = table.reindex(index)  # it may be of some texts alone
        return self.columns | {name: column.to_numpy() for name, column in table.items()}


def read_instances(folder: StudyFolder, run: PlannedRun, stage: Stage) -> Instances:
    """The instances of a split at the best epoch of a finished run.

    Where an instance is a part of a text, it takes its label from the base's record: that of the run
    itself is null where it was not measured.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other instances than that of the base.
    """
    study, path = folder.study, folder.record(run.name, stage, PREDICTIONS)
    record = labels = read_record(path)
    columns, classes, index = record.columns, record.metadata["classes"], record.columns["index"]
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1))
    clustered = study.target is not None or len(starts) < len(index)
    divergence = worst_case = None
    if run.base is not None:
        divergence = read_record(folder.record(run.name, stage, DIVERGENCE))
        columns = divergence.columns | columns
        if clustered:
            labels = read_record(folder.record(run.base, stage, PREDICTIONS), [*KEY, "label"])
    elif stage == "test" and not clustered:
        worst = folder.record(run.name, stage, "adversarial_attention")
        worst_case = read_record(worst) if worst.is_file() else None
    for other in filter(None, (labels, divergence)):
        if not all(np.array_equal(columns[key], other.columns[key]) for key in KEY):
            raise InputError(f"{path} holds other rows than the records beside it: test it anew.")
    if "label" not in labels.columns:
        raise RecordError(f"{path}: no instance has a label, or none was measured.")
    label = np.nan_to_num(labels.columns["label"], nan=-1).astype(np.int64)
    prediction, measured = columns["prediction"], columns["prediction"] != EXCLUDED
    values: Columns = {"tokens": measured, "correct": measured & (prediction == label)}
    target = study.target or "tokens"
    chunks = study.problem.chunks(label, prediction, starts, classes, target)
    if chunks is not None:
        values |= dict(zip(_COUNTED, chunks, strict=True))
    judged = {"nll_gold": label}
    if divergence is not None:
        undefined = np.full(len(label), np.nan)
        values |= {name: columns.get(name, undefined) for name in COMPARED}
        if HEADS not in columns:  # one head, or nothing was measured
            values["attention_js_mean"] = values["attention_js"]
        values[HEADS] = columns.get(HEADS, values["attention_js"][:, None])
        base = np.nan_to_num(columns.get("base_prediction", undefined), nan=-1).astype(np.int64)
        judged["nll_base"], values["agree"] = base, measured & (prediction == base)
        values["choices"] = ~np.isnan(values["attention_js_share"])
        values["tau_rows"] = ~np.isnan(values["attention_tau"])
    unknown = np.full((len(label), len(classes)), np.nan)
    for name, answers in judged.items():
        probability = columns.get("probabilities", unknown)[np.arange(len(answers)), answers]
        losses = -np.log(np.maximum(probability.astype(np.float64), _LEAST))
        values[name] = np.where(answers < 0, np.nan, losses)
    return Instances(columns, label, classes, starts, values, clustered, worst_case)
