"""Which adversaries' training collapsed, by their loss on validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.estimates import Runs
from attnlight.report.study.plan import StudyRun
from attnlight.report.tables import number
from attnlight.report.tagging.estimates import NLL_BASE
from attnlight.report.tagging.reading import TaggingStudy
from attnlight.statistics.collapse import collapse_share


class Collapse(NamedTuple):
    """Which adversaries of a base collapsed.

    Attributes:
        names: Names of those that did.
        threshold: The loss above which a run has, in nats a token; NaN where it cannot be told.
        ignorant: The loss of a prediction that knows nothing; NaN where the study does not say.
        unknown: Why it cannot be told; empty where it can.
    """

    names: frozenset[str]
    threshold: float
    ignorant: float
    unknown: str = ""

    def of(self, runs: Runs) -> list[StudyRun]:
        """Those of some runs that collapsed."""
        return [run for run in runs if run.name in self.names]

    def share(self, runs: Runs) -> str:
        """How many of some runs collapsed, in words; a dash where it cannot be told."""
        if self.unknown or not runs:
            return number(float("nan"))
        return f"{len(self.of(runs))} of {len(runs)}"

    @property
    def note(self) -> str:
        """What is called a collapse, a sentence."""
        if self.unknown:
            return f"Which runs collapsed cannot be told: {self.unknown}."
        return (
            "Collapsed: the loss on validation against the base's labels is above "
            f"{number(self.threshold)} nats a token, the middle between the median of λ = 0 and "
            f"{number(self.ignorant)}, which is that of knowing no more than how frequent tags are."
        )


def find_collapses(study: TaggingStudy, base: StudyRun) -> Collapse:
    """Find the adversaries of a base, of all attention terms, whose training collapsed.

    A finished run whose loss the study does not have had no finite one.
    """
    runs = study.finished("adversary", base=base.name)
    losses = _losses(runs)
    control = [run.lam == 0 for run in runs]
    if not np.isfinite(losses[control]).any():
        return _unknown("no finished run of λ = 0 has a loss on validation")
    if base.ignorant is None:
        return _unknown("the study does not say what knowing nothing loses")
    lambdas = np.array([run.lam or 0.0 for run in runs])
    try:
        threshold = collapse_share(lambdas, losses, base.ignorant).threshold
    except InputError as error:
        return _unknown(str(error).rstrip("."))
    fallen = ~np.isfinite(losses) | (losses > threshold)
    names = frozenset(run.name for run, fell in zip(runs, fallen, strict=True) if fell)
    return Collapse(names, threshold, base.ignorant)


def _losses(runs: Sequence[StudyRun]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    held = [run.validation.get(NLL_BASE) for run in runs]
    return np.array([np.nan if loss is None else loss for loss in held], dtype=np.float64)


def _unknown(why: str) -> Collapse:
    return Collapse(frozenset(), float("nan"), float("nan"), why)
