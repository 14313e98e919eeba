"""Estimates of a tagger's study: ratios of sums over sentences, averaged over seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.report.study.estimates import (
    ACCURACY,
    F1,
    JS,
    TVD,
    Resampled,
    Runs,
    SeedEstimates,
)
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.rows import Columns
from attnlight.report.tagging.reading import TaggingStudy
from attnlight.statistics.bootstrap import RESAMPLES, resampled_ratios

NLL_GOLD, NLL_BASE, AGREEMENT = "nll_gold", "nll_base", "agreement"
JS_MEAN, SHARE, TAU = "attention_js_mean", "attention_js_share", "attention_tau"
_HEADS = "attention_js_heads"
# What each measure is a mean over.
_OVER = {
    ACCURACY: "tokens",
    NLL_GOLD: "tokens",
    NLL_BASE: "tokens",
    AGREEMENT: "tokens",
    JS: "tokens",
    JS_MEAN: "tokens",
    TVD: "tokens",
    SHARE: "choices",
    TAU: "tau_rows",
}
_COLUMN = {ACCURACY: "correct", AGREEMENT: "agree"}
PREDICTION, DISTANCE = (F1, ACCURACY, NLL_GOLD, NLL_BASE), (JS, JS_MEAN, SHARE, TVD, AGREEMENT, TAU)
NOTE = (
    f"mean ± standard deviation over seeds [95 % interval: {RESAMPLES:,} resamples of seeds, then "
    "of sentences; of one seed, sentences alone]"
)
Floats = NDArray[np.float64]


class _Ratios(NamedTuple):
    """A run's measures as they are, (M,), and in each resample of the sentences, (B, M)."""

    held: Floats
    drawn: Floats


class TaggingEstimates(SeedEstimates):
    """Estimates of the study of a tagger.

    Measures are `f1` (accuracy where there are no chunks), those of `PREDICTION` and `DISTANCE`, and
    `head_measure(h)`. Each run has one value of each, over all its test tokens.

    Args:
        study: The study.
    """

    def __init__(self, study: TaggingStudy) -> None:
        super().__init__()
        self.study = study
        self._measures = [*_OVER, F1, *map(head_measure, range(study.heads))]
        self._ratios: dict[str, _Ratios] = {}

    @override
    def _resampled(self, runs: Runs, measure: str) -> Resampled:
        place = self._place(measure)
        held = np.array([self._of(run).held[place] for run in runs], dtype=np.float64)
        drawn = [self._of(run).drawn[:, place] for run in runs]
        return held, np.stack(drawn, axis=1) if drawn else np.empty((RESAMPLES, 0))

    def _place(self, measure: str) -> int:
        if measure == F1 and not self.study.chunks:
            return self._measures.index(ACCURACY)
        return self._measures.index(measure)

    def _of(self, run: StudyRun) -> _Ratios:
        if run.name not in self._ratios:
            columns = self.study.columns[run.name]
            pairs = [_pair(columns, measure) for measure in self._measures]
            tops, bottoms = (np.stack(part, axis=1) for part in zip(*pairs, strict=True))
            found = resampled_ratios(tops, bottoms, resamples=RESAMPLES)
            self._ratios[run.name] = _Ratios(*found)
        return self._ratios[run.name]


def head_measure(head: int) -> str:
    """The measure of how far the attention that is matched with a head of the base is from it."""
    return f"{_HEADS}_{head}"


def _pair(columns: Columns, measure: str) -> tuple[Floats, Floats]:
    """Numerator and denominator of a measure for each sentence, (n,) each."""
    if measure == F1:
        matched, gold, found = (_column(columns, name) for name in ("matched", "gold", "found"))
        return 2 * matched, gold + found
    return (
        _column(columns, _COLUMN.get(measure, measure)),
        _column(columns, _OVER.get(measure, "tokens")),
    )


def _column(columns: Columns, name: str) -> Floats:
    """A column, NaN where it is undefined, infinite, or not in the study."""
    values = columns.get(name)
    if values is None:
        return np.full(len(columns["index"]), np.nan)
    return np.where(np.isfinite(values), values, np.nan)
