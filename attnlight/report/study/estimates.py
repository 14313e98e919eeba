"""Means over the trained models of a study and differences between its groups, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.report.study.frame import ACCURACY, F1, INSTANCES, Study
from attnlight.report.tables import interval, number
from attnlight.statistics.bootstrap import (
    RESAMPLES,
    MeanInterval,
    percentile_interval,
    resampled_ratios,
)
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import mean_of_models, resample_seeds

if TYPE_CHECKING:
    import pandas as pd

    from attnlight.report.study.frame import Runs

Floats = NDArray[np.float64]
JS, TVD, TAU = "attention_js", "prediction_tvd", "attention_tau"
NLL_GOLD, NLL_BASE, SHARE, AGREEMENT = "nll_gold", "nll_base", "attention_js_share", "agreement"
PREDICTION = (F1, ACCURACY, NLL_GOLD, NLL_BASE)
DISTANCE = (JS, "attention_js_mean", SHARE, TVD, AGREEMENT, TAU)
_MEASURE = {"correct": ACCURACY, "agree": AGREEMENT}  # of a column that is called otherwise
_OVER = {SHARE: "choices", TAU: "tau_rows"}  # what a mean is over where not over all instances
_COUNTS = {*INSTANCES, *_OVER.values(), "gold", "found", "matched", "label", "prediction"}


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two such means.

    Attributes:
        mean: The mean or difference, NaN where it is undefined.
        std: Standard deviation over trained models; NaN for one and for a difference.
        low: Lower end of the 95 % interval over trained models and texts.
        high: Upper end.
        seeds: Number of trained models; for a difference that of the smaller group.
    """

    mean: float
    std: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        spread = "" if np.isnan(self.std) else f" ± {number(self.std)}"
        mean, ends = self.signed.split(" ", 1)
        return mean if np.isnan(self.mean) else f"{mean}{spread} {ends}"

    @property
    def signed(self) -> str:
        """The mean with its interval, which an undefined mean may have, too."""
        ends = interval(MeanInterval(self.mean, self.low, self.high, self.seeds))
        return f"{number(self.mean)} {ends}"


class Estimates:
    """Estimates of one study, each computed once.

    The unit of a mean and of its interval is the trained model that it is about: runs that one
    adversary or one other seed guides are averaged first. The value of a run is a ratio of sums
    over its test clusters, which resamples draw whole.

    Measures are `f1` (of chunks, or by class: of the second of two, else the mean over classes),
    `accuracy`, `agreement` and the other columns of `study.parquet`.

    Attributes:
        study: The study.
        resamples: Number of resamples B.
        heads: For each head of the base, its divergence from the head that is matched with it.
        measures: What is told of every group.
    """

    def __init__(self, study: Study) -> None:
        self.study, self.resamples = study, RESAMPLES
        self.heads = [str(name) for name in study.measures if str(name).startswith(f"{JS}_heads_")]
        known = (*PREDICTION, *DISTANCE, *self.heads) if study.losses else (F1, ACCURACY, TVD, JS)
        self.measures = [name for name in known if name != F1 or study.quality == F1]
        self._runs: dict[str, dict[str, tuple[Floats, Floats]]] = {}
        self._held: dict[tuple[object, ...], Estimate] = {}

    def of(self, runs: Runs, measure: str, less: Runs | None = None) -> Estimate:
        """Mean of a measure over some finished runs, or that less the mean over others.

        It is NaN where there is no run on a side.
        """
        groups = [runs] if less is None else [runs, less]
        key = measure, *(tuple(group.index) for group in groups)
        if key in self._held:
            return self._held[key]
        units = min(group["model"].nunique() for group in groups)
        if not units:
            return Estimate(np.nan, np.nan, np.nan, np.nan, 0)
        resampled = []
        for group in groups:
            held, drawn = self._resampled(group, measure)
            if not group["model"].is_unique:
                held, drawn = (mean_of_models(part, list(group["model"])) for part in (held, drawn))
            resampled.append((held, drawn))
        (mean, drawn), *other = resample_seeds(resampled)
        values, spread = resampled[0][0], np.nan
        values = values[~np.isnan(values)]
        if other:
            mean, drawn = mean - other[0][0], drawn - other[0][1]
        elif len(values) > 1:
            spread = float((values - values[0]).std(ddof=1))  # exactly 0 of equal values
        self._held[key] = Estimate(mean, spread, *percentile_interval(drawn), units)
        return self._held[key]

    def per_seed(self, runs: Runs, measure: str) -> Floats:
        """The measure of each run, (S,), NaN where undefined."""
        return self._resampled(runs, measure)[0]

    def _resampled(self, runs: Runs, measure: str) -> tuple[Floats, Floats]:
        """A measure of each run, (S,), and in each resample of the clusters, (B, S).

        Every measure of the runs that are new is estimated, all on the same resamples.
        """
        if new := [name for name in runs.index if name not in self._runs]:
            every = [self.study.measures.loc[name] for name in new]
            pairs = [_ratios(rows) for rows in every]
            columns = [pair for run in pairs for pair in run.values()]
            tops, bottoms = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
            held, drawn = resampled_ratios(tops, bottoms, resamples=self.resamples)
            found = zip(held, drawn.T, strict=True)
            for name, run in zip(new, pairs, strict=True):
                self._runs[name] = {measured: next(found) for measured in run}
            if F1 not in pairs[0] and "prediction" in every[0]:
                predictions = np.stack([rows["prediction"].to_numpy() for rows in every])
                known = every[0]["label"].to_numpy(), len(self.study.classes)
                held, drawn = resampled_f1(predictions, *known, resamples=self.resamples)
                for name, *values in zip(new, held, drawn.T, strict=True):
                    self._runs[name][F1] = values[0], values[1]
        nothing = np.array(np.nan), np.full(self.resamples, np.nan)
        asked = [self._runs[name].get(measure, nothing) for name in runs.index]
        held = np.array([held for held, _ in asked], np.float64)
        return held, np.array([drawn for _, drawn in asked]).reshape(-1, self.resamples).T


def _ratios(rows: pd.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Numerator and denominator of each measure by cluster, (n,) each, NaN where undefined."""
    held = {str(n): rows[n].where(np.isfinite(rows[n])).to_numpy(float) for n in rows}
    if "prediction" in held and "correct" not in held:
        right = held["prediction"] == held["label"]
        held["correct"] = np.where(held["label"] >= 0, right, np.nan)
    every = next((held[name] for name in INSTANCES if name in held), np.ones(len(rows)))
    found = {
        _MEASURE.get(column, column): (values, held.get(_OVER.get(column, ""), every))
        for column, values in held.items()
        if column not in _COUNTS
    }
    if {"matched", "gold", "found"} <= held.keys():
        found[F1] = 2 * held["matched"], held["gold"] + held["found"]
    return found
