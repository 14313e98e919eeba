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

from attnlight.functional.f1 import f1_difference, f1_over_seeds, f1_scores
from attnlight.functional.seeds import difference_of_groups, seeds_then_instances
from attnlight.functional.statistics import RESAMPLES, MeanInterval
from attnlight.report.study.reading import Study, StudyRun
from attnlight.report.tables import interval, number

JS, TVD, F1, ACCURACY = "attention_js", "prediction_tvd", "f1", "accuracy"
NOTE = (
    f"mean ± standard deviation over seeds [95 % interval: {RESAMPLES:,} resamples of seeds, then "
    "of texts; of one seed, texts alone]"
)
Runs = Sequence[StudyRun]


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two such means.

    Attributes:
        mean: The mean or difference, NaN where it is undefined.
        std: Standard deviation over seeds; NaN for one seed and for a difference.
        low: Lower end of the 95 % interval over seeds and texts.
        high: Upper end.
        seeds: Number of seeds; for a difference that of the smaller group.
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


class SeedEstimates(ABC):
    """Estimates of one study, each computed once."""

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

    @abstractmethod
    def per_seed(self, runs: Runs, measure: str) -> NDArray[np.float64]:
        """The measure of each run, (S,), NaN where undefined."""

    @abstractmethod
    def _mean(self, runs: Runs, measure: str) -> MeanInterval:
        """Mean over seeds with its interval."""

    @abstractmethod
    def _difference(self, a: Runs, b: Runs, measure: str) -> MeanInterval:
        """Difference of the means over seeds with its interval."""

    def _once(self, key: _Key, compute: Callable[[], Estimate]) -> Estimate:
        if key not in self._held:
            self._held[key] = compute()
        return self._held[key]

    def _estimate(self, runs: Runs, measure: str) -> Estimate:
        by_seed = self.per_seed(runs, measure)
        defined = by_seed[~np.isnan(by_seed)]
        found = self._mean(runs, measure)
        return Estimate(found.mean, _deviation(defined), found.low, found.high, len(runs))

    def _estimate_difference(self, a: Runs, b: Runs, measure: str) -> Estimate:
        found, seeds = self._difference(a, b, measure), min(len(a), len(b))
        return Estimate(found.mean, float("nan"), found.low, found.high, seeds)


class Estimates(SeedEstimates):
    """Estimates of the study of a classifier.

    Measures are `f1`, `accuracy` and the columns of `study.parquet`.

    Args:
        study: The study.
    """

    def __init__(self, study: Study) -> None:
        super().__init__()
        self.study = study

    @override
    def per_seed(self, runs: Runs, measure: str) -> NDArray[np.float64]:
        if measure == F1:
            study = self.study
            return f1_scores(self._predictions(runs), study.label, len(study.classes))
        values = self._values(runs, measure)
        defined = ~np.isnan(values)
        sums, counts = np.where(defined, values, 0.0).sum(axis=1), defined.sum(axis=1)
        means: NDArray[np.float64] = np.divide(
            sums, counts, out=np.full(len(values), np.nan), where=counts > 0
        )
        return means

    @override
    def _mean(self, runs: Runs, measure: str) -> MeanInterval:
        if measure == F1:
            known = self.study.label, len(self.study.classes)
            return f1_over_seeds(self._predictions(runs), *known, resamples=RESAMPLES)
        return seeds_then_instances(self._values(runs, measure), resamples=RESAMPLES)

    @override
    def _difference(self, a: Runs, b: Runs, measure: str) -> MeanInterval:
        if measure == F1:
            known = self.study.label, len(self.study.classes)
            pair = self._predictions(a), self._predictions(b)
            return f1_difference(*pair, *known, resamples=RESAMPLES)
        values = self._values(a, measure), self._values(b, measure)
        return difference_of_groups(*values, resamples=RESAMPLES)

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
