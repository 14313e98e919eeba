"""Means over the trained models of a study and differences between its groups, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
JS, TVD = "attention_js", "prediction_tvd"
NLL_GOLD, NLL_BASE, AGREEMENT = "nll_gold", "nll_base", "agreement"
JS_MEAN, SHARE, TAU = "attention_js_mean", "attention_js_share", "attention_tau"
PREDICTION, DISTANCE = (F1, ACCURACY, NLL_GOLD, NLL_BASE), (JS, JS_MEAN, SHARE, TVD, AGREEMENT, TAU)
_COLUMN = {ACCURACY: "correct", AGREEMENT: "agree"}
_OVER = {SHARE: "choices", TAU: "tau_rows"}  # what a mean is over where not over all instances
_COUNTS = {*INSTANCES, *_OVER.values(), "gold", "found", "matched", "label", "prediction"}


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
        return f"{number(self.mean)}{spread} {interval(MeanInterval(*self._ends, 0))}"

    @property
    def signed(self) -> str:
        """The mean with its interval."""
        return f"{number(self.mean)} {interval(MeanInterval(*self._ends, 0))}"

    @property
    def size(self) -> str:
        """The mean without its sign, with its interval."""
        if self.mean >= 0:
            return self.signed
        return Estimate(-self.mean, self.std, -self.high, -self.low, self.seeds).signed

    @property
    def _ends(self) -> tuple[float, float, float]:
        return self.mean, self.low, self.high


_NOTHING = Estimate(*(float("nan"),) * 4, 0)


def models(runs: Runs) -> int:
    """How many trained models some runs stand for: of guided runs those whose attention they got."""
    return int(runs["model"].nunique())


def seeds_cell(runs: Runs) -> str:
    """Number of runs, and of the trained models that guide them where those are fewer."""
    units = models(runs)
    return f"{len(runs)}" if units == len(runs) else f"{len(runs)} (guided by {units})"


class Estimates:
    """Estimates of one study, each computed once.

    The unit of a mean and of its interval is the trained model that it is about: runs that one
    adversary or one other seed guides are averaged first. The value of a run is a ratio of sums over
    its test clusters, of which resamples draw whole clusters.

    Measures are `f1` (of chunks, or by class: of the second of two, else the mean over classes),
    `accuracy`, `agreement` and the other columns of `study.parquet`.

    Args:
        study: The study.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._runs: dict[str, dict[str, tuple[Floats, Floats]]] = {}
        self._held: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Estimate] = {}

    @property
    def note(self) -> str:
        """What a cell is."""
        clusters = f"{self.study.words.cluster}s"
        return (
            f"mean ± standard deviation over seeds [95 % interval: {RESAMPLES:,} resamples of seeds, "
            f"then of {clusters}; of one seed, {clusters} alone]"
        )

    def of(self, runs: Runs, measure: str) -> Estimate:
        """Mean of a measure over some finished runs; NaN where there is none."""

        def compute() -> Estimate:
            resampled = self._by_model(runs, measure)
            ((mean, drawn),) = resample_seeds([resampled])
            spread = _deviation(resampled[0][~np.isnan(resampled[0])])
            return Estimate(mean, spread, *percentile_interval(drawn), models(runs))

        return self._once((measure, tuple(runs.index), ()), compute) if len(runs) else _NOTHING

    def difference(self, a: Runs, b: Runs, measure: str) -> Estimate:
        """Mean of a measure over runs a less that over runs b; NaN where either has none."""

        def compute() -> Estimate:
            pair = [self._by_model(runs, measure) for runs in (a, b)]
            (first, one), (second, other) = resample_seeds(pair)
            ends = percentile_interval(one - other)
            return Estimate(first - second, float("nan"), *ends, min(models(a), models(b)))

        key = measure, tuple(a.index), tuple(b.index)
        return self._once(key, compute) if len(a) and len(b) else _NOTHING

    def per_seed(self, runs: Runs, measure: str) -> Floats:
        """The measure of each run, (S,), NaN where undefined."""
        return self._resampled(runs, measure)[0]

    def _once(
        self, key: tuple[str, tuple[str, ...], tuple[str, ...]], compute: Callable[[], Estimate]
    ) -> Estimate:
        if key not in self._held:
            self._held[key] = compute()
        return self._held[key]

    def _by_model(self, runs: Runs, measure: str) -> tuple[Floats, Floats]:
        """The measure of each trained model, (U,), and in each resample of the clusters, (B, U)."""
        held, drawn = self._resampled(runs, measure)
        return mean_of_models(held, list(runs["model"])), mean_of_models(drawn, list(runs["model"]))

    def _resampled(self, runs: Runs, measure: str) -> tuple[Floats, Floats]:
        """A measure of each run, (S,), and in each resample of the clusters, (B, S)."""
        new = [name for name in runs.index if name not in self._runs]
        if new:
            self._runs |= zip(new, self._measured(new), strict=True)
        nothing = np.array(np.nan), np.full(RESAMPLES, np.nan)
        pairs = [self._runs[name].get(measure, nothing) for name in runs.index]
        held = np.array([held for held, _ in pairs], np.float64)
        return held, np.array([drawn for _, drawn in pairs]).reshape(-1, RESAMPLES).T

    def _measured(self, names: Sequence[str]) -> Iterator[dict[str, tuple[Floats, Floats]]]:
        """Every measure of some runs, all on the same resamples."""
        every = [self.study.measures.loc[name] for name in names]
        pairs = [_ratios(rows) for rows in every]
        columns = [pair for run in pairs for pair in run.values()]
        tops, bottoms = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
        held, drawn = resampled_ratios(tops, bottoms, resamples=RESAMPLES)
        found = zip(held, drawn.T, strict=True)
        own = [{measure: next(found) for measure in run} for run in pairs]
        if F1 not in pairs[0] and "prediction" in every[0]:
            predictions = np.stack([rows["prediction"].to_numpy() for rows in every])
            known = every[0]["label"].to_numpy(), len(self.study.classes)
            held, drawn = resampled_f1(predictions, *known, resamples=RESAMPLES)
            for run, values in zip(own, zip(held, drawn.T, strict=True), strict=True):
                run[F1] = values
        yield from own


def _ratios(rows: pd.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Numerator and denominator of each measure for each cluster, (n,) each, NaN where undefined."""
    held = {str(n): rows[n].where(np.isfinite(rows[n])).to_numpy(float) for n in rows}
    if "prediction" in held and "correct" not in held:
        right = held["prediction"] == held["label"]
        held["correct"] = np.where(held["label"] >= 0, right, np.nan)
    every = next((held[name] for name in INSTANCES if name in held), np.ones(len(rows)))
    names = {column: measure for measure, column in _COLUMN.items()}
    found = {
        names.get(column, column): (values, held.get(_OVER.get(column, ""), every))
        for column, values in held.items()
        if column not in _COUNTS
    }
    if {"matched", "gold", "found"} <= held.keys():
        found[F1] = 2 * held["matched"], held["gold"] + held["found"]
    return found


def _deviation(values: Floats) -> float:
    """Standard deviation; 0 of equal values, whose mean may be rounded; NaN of fewer than two."""
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1)) if np.ptp(values) else 0.0


def to_csv(
    groups: Iterable[tuple[str, str, Runs]], measures: Sequence[str], estimates: Estimates
) -> str:
    """Every mean of some groups as CSV, numbers in full and empty where undefined.

    Args:
        groups: Name, base and finished runs of each.
        measures: What is estimated of each.
        estimates: The estimates.
    """
    import pandas as pd

    rows = [
        (name, base, measure, *estimates.of(runs, measure))
        for name, base, runs in groups
        for measure in measures
    ]
    head = ["group", "base", "measure", "mean", "std", "low", "high", "seeds"]
    return str(pd.DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n"))
