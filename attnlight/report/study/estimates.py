"""Means over the seeds of a study and differences between its groups, with their intervals."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.report.study.reading import Study, StudyRun
from attnlight.report.tables import interval, number
from attnlight.statistics.bootstrap import RESAMPLES, MeanInterval, percentile_interval
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import mean_of_models, resample_seeds, resampled_means

JS, TVD, F1, ACCURACY = "attention_js", "prediction_tvd", "f1", "accuracy"
NOTE = (
    f"mean ± standard deviation over seeds [95 % interval: {RESAMPLES:,} resamples of seeds, then "
    "of texts; of one seed, texts alone]"
)
GUIDED = "Runs that one model guides are averaged first, and that model is drawn as one."
Runs = Sequence[StudyRun]
Resampled = tuple[NDArray[np.float64], NDArray[np.float64]]


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two such means.

    Attributes:
        mean: The mean or difference, NaN where it is undefined.
        std: Standard deviation over trained models; NaN for one and for a difference.
        low: Lower end of the 95 % interval over trained models and texts.
        high: Upper end.
        seeds: Number of trained models (`models`); for a difference that of the smaller group.
    """

    mean: float
    std: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return number(self.mean)
        spread = "" if np.isnan(self.std) else f" ± {number(self.std)}"
        ends = MeanInterval(self.mean, self.low, self.high, 0)
        return f"{number(self.mean)}{spread} {interval(ends)}"


_NOTHING = Estimate(*(float("nan"),) * 4, 0)
_Key = tuple[str, tuple[str, ...], tuple[str, ...]]


def models(runs: Runs) -> list[str]:
    """The trained models that some runs stand for: of guided runs those whose attention they got."""
    return list(dict.fromkeys(run.model for run in runs))


def seeds_cell(runs: Runs) -> str:
    """Number of runs, and of the trained models that guide them where those are fewer."""
    units = len(models(runs))
    return f"{len(runs)}" if units == len(runs) else f"{len(runs)} (guided by {units})"


class SeedEstimates(ABC):
    """Estimates of one study, each computed once.

    The unit of a mean and of its interval is the trained model that it is about. Runs that one
    adversary or one other seed guides are averaged first.
    """

    def __init__(self) -> None:
        self._held: dict[_Key, Estimate] = {}

    def of(self, runs: Runs, measure: str) -> Estimate:
        """Mean of a measure over some finished runs; NaN where there is none."""
        if not runs:
            return _NOTHING
        return self._once((measure, _names(runs), ()), lambda: self._estimate(runs, measure))

    def difference(self, a: Runs, b: Runs, measure: str) -> Estimate:
        """Mean of a measure over runs a less that over runs b; NaN where either has none."""
        if not (a and b):
            return _NOTHING
        key = (measure, _names(a), _names(b))
        return self._once(key, lambda: self._estimate_difference(a, b, measure))

    def per_seed(self, runs: Runs, measure: str) -> NDArray[np.float64]:
        """The measure of each run, (S,), NaN where undefined."""
        return self._resampled(runs, measure)[0]

    @abstractmethod
    def _resampled(self, runs: Runs, measure: str) -> Resampled:
        """The measure of each run, (S,), and in each resample of the instances, (B, S)."""

    def _by_model(self, runs: Runs, measure: str) -> Resampled:
        """`_resampled` with one value for each trained model, (U,) and (B, U)."""
        held, drawn = self._resampled(runs, measure)
        names = [run.model for run in runs]
        return mean_of_models(held, names), mean_of_models(drawn, names)

    def _once(self, key: _Key, compute: Callable[[], Estimate]) -> Estimate:
        if key not in self._held:
            self._held[key] = compute()
        return self._held[key]

    def _estimate(self, runs: Runs, measure: str) -> Estimate:
        resampled = self._by_model(runs, measure)
        ((mean, drawn),) = resample_seeds([resampled])
        spread = _deviation(resampled[0][~np.isnan(resampled[0])])
        return Estimate(mean, spread, *percentile_interval(drawn), len(models(runs)))

    def _estimate_difference(self, a: Runs, b: Runs, measure: str) -> Estimate:
        pair = [self._by_model(runs, measure) for runs in (a, b)]
        (first, one), (second, other) = resample_seeds(pair)
        seeds = min(len(models(runs)) for runs in (a, b))
        return Estimate(first - second, float("nan"), *percentile_interval(one - other), seeds)


class Estimates(SeedEstimates):
    """Estimates of the study of a classifier.

    Measures are `f1`, `accuracy` and the columns of `study.parquet`.

    Args:
        study: The study.
    """

    def __init__(self, study: Study) -> None:
        super().__init__()
        self.study = study
        self._groups: dict[tuple[str, tuple[str, ...]], Resampled] = {}

    @override
    def _resampled(self, runs: Runs, measure: str) -> Resampled:
        key = measure, _names(runs)
        if key not in self._groups:
            if measure == F1:
                known = self.study.label, len(self.study.classes)
                found = resampled_f1(self._predictions(runs), *known, resamples=RESAMPLES)
            else:
                found = resampled_means(self._values(runs, measure), resamples=RESAMPLES)
            self._groups[key] = found
        return self._groups[key]

    def _predictions(self, runs: Runs) -> NDArray[np.int64]:
        return self.study.values(runs, "prediction").astype(np.int64)

    def _values(self, runs: Runs, measure: str) -> NDArray[np.float64]:
        if measure != ACCURACY:
            return self.study.values(runs, measure).astype(np.float64)
        right = self._predictions(runs) == self.study.label
        return np.where(self.study.label >= 0, right, np.nan)


def _deviation(values: NDArray[np.float64]) -> float:
    """Standard deviation; 0 of equal values, whose mean may be rounded; NaN of fewer than two."""
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1)) if np.ptp(values) else 0.0


def to_csv(
    groups: Iterable[tuple[str, str, Runs]], measures: Sequence[str], estimates: SeedEstimates
) -> str:
    """Every mean of some groups as CSV, numbers in full and empty where undefined.

    Args:
        groups: Name, base and finished runs of each.
        measures: What is estimated of each.
        estimates: The estimates.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "base", "measure", "mean", "std", "low", "high", "seeds"])
    for name, base, runs in groups:
        for measure in measures:
            found = estimates.of(runs, measure)
            numbers = ["" if np.isnan(value) else repr(value) for value in found[:4]]
            writer.writerow([name, base, measure, *numbers, found.seeds])
    return text.getvalue()


def _names(runs: Runs) -> tuple[str, ...]:
    return tuple(run.name for run in runs)
