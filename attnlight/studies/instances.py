"""The instances of one split from a run's records, their means, and sums over each text."""

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
KL = ("attention_kl", "attention_kl_elements")  # may be infinite
MEANS = ("nll_gold", "nll_base", *COMPARED, *KL)  # columns averaged over the instances of a split
HEADS = "attention_js_heads"
WORST_CASE = ("worst_js", "search_js", "search_tvd")
_COUNTED = ("gold", "found", "matched")
# Probabilities that underflow float32 are replaced by its smallest number: a loss of 103 nats.
_SMALLEST = float(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Instances:
    """R instances of a split, grouped by text."""

    # Columns of a run's records, (R,) or (R, K), NaN where a value is null; `index` is the dataset
    # row of the text, ascending.
    columns: Columns
    label: NDArray[np.int64]  # true class of each, (R,), -1 without a label
    classes: Sequence[str]  # names of the classes
    starts: NDArray[np.int64]  # index of the first instance of each of S texts, (S,)
    # Counts and measures of each, (R,) or (R, H), NaN where undefined: `tokens` (whether it was
    # measured), `correct`, `nll_gold` in nats; if the problem counts chunks `gold`, `found`,
    # `matched` (whether a chunk of the labels, of the predictions, of both starts there); and of a
    # variant `COMPARED`, `KL` if recorded, `HEADS`, `agree`, `nll_base`, `choices` and `tau_rows`
    # (whether share and tau are defined).
    values: Columns
    several_instances: bool  # whether an instance is a part of a text, not a complete text
    # The record of worst-case attention of a base on test texts, if there is one.
    worst_case: Record | None = None

    def measures(self) -> Measures:
        """Means over the instances.

        Returns:
            For texts `accuracy`, `macro_f1`, `f1` (of the second of two classes, None for more),
            `attention_js` and `prediction_tvd`; for parts of texts `f1` (of chunks if the problem
            counts them, else the mean over classes), `accuracy`, `nll_gold`, `nll_base`, `COMPARED`,
            `KL` over the instances where it is finite, and `HEADS`, a list. None where no value is
            defined. An instance that was not measured is an error; a class that is neither a label
            nor predicted has no F1.
        """
        values, means = self.values, {}
        for name in (*MEANS, HEADS):
            columns = np.atleast_2d(values[name].T) if name in values else ()
            defined = [column[np.isfinite(column)] for column in columns]
            each = [float(column.mean(dtype=np.float64)) for column in defined if len(column)]
            means[name] = (each if name == HEADS else each[0]) if each else None
        measures: Measures = {"accuracy": float(values["correct"].mean())}
        if "matched" in values:
            gold, predicted, both = (int(values[name].sum()) for name in _COUNTED)
            return measures | {"f1": 2 * both / max(gold + predicted, 1)} | means
        classes = len(self.classes)
        by_class = f1_by_class(self.columns["prediction"], self.label, classes)
        f1 = float(np.nanmean(by_class))
        if self.several_instances:
            return measures | {"f1": f1} | means
        measures |= {"macro_f1": f1, "f1": float(by_class[1]) if classes == 2 else None}
        return measures | {name: means[name] for name in ("attention_js", "prediction_tvd")}

    def rows(self) -> Columns:
        """Columns of one row per text, (S,) or (S, H), without unknown ones.

        They are sums of defined values over the instances of a text, infinite if one of them is, or
        the values of its only one.
        """
        import pandas as pd

        index = self.columns["index"]
        if self.several_instances:
            sums = {"index": index[self.starts]}
            for name, column in self.values.items():
                defined = np.where(np.isnan(column), 0.0, column.astype(np.float64))
                sums[name] = np.add.reduceat(defined, self.starts, axis=0)
            return sums
        if self.worst_case is None:
            return self.columns
        worst = self.worst_case.columns
        table = pd.DataFrame({n: worst[n] for n in WORST_CASE if n in worst}, worst["index"])
        table = table.reindex(index)  # the record may lack some texts
        return self.columns | {name: column.to_numpy() for name, column in table.items()}


def read_instances(folder: StudyFolder, run: PlannedRun, stage: Stage) -> Instances:
    """The instances of a split at the best epoch of a finished run.

    If an instance is a part of a text, its label is read from the base's record: in the run's record
    it is null if the instance was not measured.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record has other instances than the base's.
    """
    study, path = folder.study, folder.record(run.name, stage, PREDICTIONS)
    record = labels = read_record(path)
    columns, classes, index = record.columns, record.metadata["classes"], record.columns["index"]
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 1))
    several = study.setup.several_instances or len(starts) < len(index)
    divergence = worst_case = None
    if run.base is not None:
        divergence = read_record(folder.record(run.name, stage, DIVERGENCE))
        columns = divergence.columns | columns
        if several:
            labels = read_record(folder.record(run.base, stage, PREDICTIONS), [*KEY, "label"])
    elif stage == "test" and not several:
        worst = folder.record(run.name, stage, "adversarial_attention")
        worst_case = read_record(worst) if worst.is_file() else None
    for other in filter(None, (labels, divergence)):
        if not all(np.array_equal(columns[key], other.columns[key]) for key in KEY):
            raise InputError(
                f"{path} has other rows than the records beside it: run the test again."
            )
    if "label" not in labels.columns:
        raise RecordError(f"{path}: no instance has a label, or none was measured.")
    label = np.nan_to_num(labels.columns["label"], nan=-1).astype(np.int64)
    prediction, measured = columns["prediction"], columns["prediction"] != EXCLUDED
    values: Columns = {"tokens": measured, "correct": measured & (prediction == label)}
    target = study.setup.target or "tokens"
    chunks = study.setup.problem.chunks(label, prediction, starts, classes, target)
    if chunks is not None:
        values |= dict(zip(_COUNTED, chunks, strict=True))
    targets = {"nll_gold": label}
    if divergence is not None:
        undefined = np.full(len(label), np.nan)
        values |= {name: columns.get(name, undefined) for name in COMPARED}
        values |= {name: columns[name] for name in KL if name in columns}
        if HEADS not in columns:  # one head, or nothing was measured
            values["attention_js_mean"] = values["attention_js"]
        values[HEADS] = columns.get(HEADS, values["attention_js"][:, None])
        base = np.nan_to_num(columns.get("base_prediction", undefined), nan=-1).astype(np.int64)
        targets["nll_base"], values["agree"] = base, measured & (prediction == base)
        values["choices"] = ~np.isnan(values["attention_js_share"])
        values["tau_rows"] = ~np.isnan(values["attention_tau"])
    unknown = np.full((len(label), len(classes)), np.nan)
    for name, target_class in targets.items():
        place = np.arange(len(target_class)), target_class
        probability = columns.get("probabilities", unknown)[place]
        losses = -np.log(np.maximum(probability.astype(np.float64), _SMALLEST))
        values[name] = np.where(target_class < 0, np.nan, losses)
    return Instances(columns, label, classes, starts, values, several, worst_case)
