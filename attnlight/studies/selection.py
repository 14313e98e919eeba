"""Which adversary stands for its term: chosen on validation, as Wiegreffe & Pinter's table 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnlight.studies.plan import PlannedRun
from attnlight.studies.validation import Measures

REQUIRED_JS = 0.4


@dataclass(frozen=True)
class Selection:
    """The chosen weight of one attention term.

    Attributes:
        term: The term.
        lambda_: The weight.
        runs: The adversaries of this weight by seed.
        reached: Whether the mean validation JS is at least 0.4; otherwise it is the largest.
    """

    term: str
    lambda_: float
    runs: Mapping[int, str]
    reached: bool

    def told_by(self, seed: int) -> str:
        """The adversary that guides a run: that of its seed, or else the first."""
        return self.runs.get(seed) or next(iter(self.runs.values()))


@dataclass(frozen=True)
class _Weight:
    """Means over seeds at one lambda."""

    lambda_: float
    f1: float
    js: float
    tvd: float


def select(runs: Sequence[PlannedRun], measures: Mapping[str, Measures]) -> Selection | None:
    """Choose the lambda of one term by means over seeds on validation.

    Of the lambdas above 0 whose JS is at least 0.4 that of the highest F1 (of the second of two
    classes, else macro; of chunks), of equals the one of lower TVD; where none is, that of the
    largest JS. One of a run that could not be measured is never chosen before others.

    Args:
        runs: Finished adversaries of one term and one base.
        measures: Of each its measures on validation.

    Returns:
        None where there is none of a lambda above 0.
    """
    grid: dict[float, list[PlannedRun]] = {}
    for run in runs:
        if run.lambda_:
            grid.setdefault(run.lambda_, []).append(run)
    if not grid:
        return None
    weights = [_mean(weight, [measures[run.name] for run in of]) for weight, of in grid.items()]
    far = [weight for weight in weights if weight.js >= REQUIRED_JS]
    best = (
        max(far, key=lambda weight: (weight.f1, -weight.tvd))
        if far
        else max(weights, key=lambda weight: -np.inf if np.isnan(weight.js) else weight.js)
    )
    chosen = {run.seed: run.name for run in grid[best.lambda_]}
    return Selection(grid[best.lambda_][0].term or "", best.lambda_, chosen, reached=bool(far))


def _mean(weight: float, measures: Sequence[Measures]) -> _Weight:
    f1 = [held["macro_f1"] if held["f1"] is None else held["f1"] for held in measures]
    js, tvd = ([held[name] for held in measures] for name in ("attention_js", "prediction_tvd"))
    return _Weight(weight, *(float(np.mean(np.array(v, dtype=float))) for v in (f1, js, tvd)))
