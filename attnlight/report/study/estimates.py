"""Means over the trained models of a study and differences between its groups, with intervals."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.figures.tables import estimate, interval, number
from attnlight.report.measure_bounds import measure_bounds
from attnlight.report.study.frame import ACCURACY, F1, INSTANCES, Runs, Study
from attnlight.statistics import bootstrap
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import mean_of_models, seed_interval

Floats = NDArray[np.float64]
JS, TVD, TAU = "attention_js", "prediction_tvd", "attention_tau"
KL_ROW, KL_ELEMENTS = "attention_kl", "attention_kl_elements"
NLL_GOLD, NLL_BASE, SHARE, AGREEMENT = "nll_gold", "nll_base", "attention_js_share", "agreement"
PREDICTION = (F1, ACCURACY, NLL_GOLD, NLL_BASE)
DISTANCE = (JS, KL_ROW, KL_ELEMENTS, "attention_js_mean", SHARE, TVD, AGREEMENT, TAU)
_MEASURE = {"correct": ACCURACY, "agree": AGREEMENT}  # measures by column where the names differ
_OVER = {SHARE: "choices", TAU: "tau_rows"}  # count of a mean that is not over all instances
_COUNTS = {*INSTANCES, *_OVER.values(), "gold", "found", "matched", "label", "prediction"}


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two such means."""

    mean: float  # the mean or difference, NaN where it is undefined
    std: float  # standard deviation over trained models; NaN for one and for a difference
    # Lower end of the 95 % interval over trained models and texts; NaN if two models leave none.
    low: float
    high: float  # upper end
    # Number of trained models that define it; for a difference that of the smaller group.
    seeds: int
    values: tuple[float, ...] = ()  # value of each trained model; empty for a difference

    def __str__(self) -> str:
        return estimate(self, spread=self.std)

    @property
    def signed(self) -> str:
        """The mean with its interval, which an undefined mean may have, too."""
        return f"{number(self.mean)} {interval(self)}"


class Estimates:
    """Estimates of one study, each computed once.

    The unit of a mean and of its interval is the trained model (`mean_of_models`). The value of a run
    is a ratio of sums over its test clusters, which the bootstrap resamples, without those of which it
    is infinite.

    Measures are `f1` (of chunks, or by class: of the second of two, else the mean over classes),
    `accuracy`, `agreement` and the other columns of `study.parquet`.

    Attributes:
        study: The study.
        heads: For each head of the base, the column of its divergence from the matched head.
        measures: The measures reported for every group; KL if the study has it.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.heads = [str(name) for name in study.measures if str(name).startswith(f"{JS}_heads_")]
        names = (*PREDICTION, *DISTANCE, *self.heads) if study.losses else (F1, ACCURACY, TVD, JS)
        recorded = {study.quality, *study.measures.columns[study.measures.notna().any()]}
        lacking = {F1, KL_ROW, KL_ELEMENTS} - recorded
        self.measures = [name for name in names if name not in lacking]
        self._runs: dict[str, dict[str, tuple[Floats, Floats]]] = {}
        self._estimates: dict[tuple[object, ...], Estimate] = {}

    def estimate(self, runs: Runs, measure: str, less: Runs | None = None) -> Estimate:
        """Mean of a measure over finished runs, minus the mean over the runs `less` if given.

        NaN if a group is empty.
        """
        groups = [runs] if less is None else [runs, less]
        key = measure, *(tuple(group.index) for group in groups)
        if key not in self._estimates:
            resampled = []
            for group in groups:
                values = np.vstack(self._resampled(group, measure))
                means = mean_of_models(values, list(group["model"]))
                resampled.append((means[0], means[1:]))
            found = seed_interval(*resampled, bounds=measure_bounds(measure))
            fewest = min(int((~np.isnan(values)).sum()) for values, _ in resampled)
            ends = found.low, found.high
            self._estimates[key] = Estimate(found.mean, found.std, *ends, fewest, found.values)
        return self._estimates[key]

    def per_seed(self, runs: Runs, measure: str) -> Floats:
        """The measure of each run, (S,), NaN where undefined."""
        return self._resampled(runs, measure)[0]

    def _resampled(self, runs: Runs, measure: str) -> tuple[Floats, Floats]:
        """A measure of each run, (S,), and in each resample of the clusters, (B, S).

        All measures of runs that are not cached yet are estimated on the same resamples.
        """
        if new := [name for name in runs.index if name not in self._runs]:
            frames = [self.study.measures.loc[name] for name in new]
            pairs = [_ratios(rows) for rows in frames]
            columns = [pair for run in pairs for pair in run.values()]
            parts = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
            per_run, resamples = bootstrap.resampled_ratios(*parts)
            estimates = zip(per_run, resamples.T, strict=True)
            for name, run in zip(new, pairs, strict=True):
                self._runs[name] = {measured: next(estimates) for measured in run}
            if F1 not in pairs[0] and "prediction" in frames[0]:
                predictions = np.stack([rows["prediction"].to_numpy() for rows in frames])
                labels = frames[0]["label"].to_numpy(), len(self.study.classes)
                per_run, resamples = resampled_f1(predictions, *labels)
                for name, *values in zip(new, per_run, resamples.T, strict=True):
                    self._runs[name][F1] = values[0], values[1]
        undefined = np.array(np.nan), np.full(bootstrap.RESAMPLES, np.nan)
        by_run = [self._runs[name].get(measure, undefined) for name in runs.index]
        per_run = np.array([per_run for per_run, _ in by_run], np.float64)
        resamples = np.array([resamples for _, resamples in by_run])
        return per_run, resamples.reshape(-1, bootstrap.RESAMPLES).T


def _ratios(rows: pd.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Numerator and denominator of each measure by cluster, (n,) each, NaN where undefined."""
    values = rows.to_numpy(np.float64)
    columns = dict(
        zip(map(str, rows), np.where(np.isfinite(values), values, np.nan).T, strict=True)
    )
    if "prediction" in columns and "correct" not in columns:
        right = columns["prediction"] == columns["label"]
        columns["correct"] = np.where(columns["label"] >= 0, right, np.nan)
    instances = next((columns[name] for name in INSTANCES if name in columns), np.ones(len(rows)))
    ratios = {
        _MEASURE.get(column, column): (values, columns.get(_OVER.get(column, ""), instances))
        for column, values in columns.items()
        if column not in _COUNTS
    }
    if {"matched", "gold", "found"} <= columns.keys():
        ratios[F1] = 2 * columns["matched"], columns["gold"] + columns["found"]
    return ratios
