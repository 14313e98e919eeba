"""Which adversary stands for its term: chosen on validation, as Wiegreffe & Pinter's table 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from attnlight.errors import InputError
from attnlight.studies.plan import PlannedRun

REQUIRED_JS = 0.4
Measures = dict[str, Any]  # numbers, None where undefined, or a list of one for each head


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

    def guide_run(self, seed: int) -> str:
        """The adversary that guides a run: that of its seed, or else the first."""
        return self.runs.get(seed) or next(iter(self.runs.values()))

    def described(self) -> dict[str, Any]:
        """Its entry in `study.json`."""
        run = next(iter(self.runs.values()))
        return {"run": run, "term": self.term, "lambda": self.lambda_, "reached": self.reached}


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
    means = {weight: _means([measures[run.name] for run in of]) for weight, of in grid.items()}
    far = [weight for weight, (_, js, _) in means.items() if js >= REQUIRED_JS]
    if far:
        best = max(far, key=lambda weight: (means[weight][0], -means[weight][2]))
    else:
        best = max(means, key=lambda weight: np.nan_to_num(means[weight][1], nan=-np.inf))
    chosen = {run.seed: run.name for run in grid[best]}
    return Selection(grid[best][0].term or "", best, chosen, reached=bool(far))


def _means(measures: Sequence[Measures]) -> tuple[float, float, float]:
    """F1, JS and TVD, each the mean over runs; NaN where one has none."""
    f1 = [own["macro_f1"] if own["f1"] is None else own["f1"] for own in measures]
    js, tvd = ([own[name] for own in measures] for name in ("attention_js", "prediction_tvd"))
    means = [float(np.mean(np.array(values, dtype=float))) for values in (f1, js, tvd)]
    return means[0], means[1], means[2]


def chosen_epoch(best: Path) -> int:
    """The epoch, from 0, of a checkpoint.

    Raises:
        InputError: It cannot be read.
    """
    import torch

    try:  # mapped, so that no tensor is read; torch does not look at the checksum of the rest
        with ZipFile(best) as file:
            file.read(next(name for name in file.namelist() if name.endswith("/data.pkl")))
        content = torch.load(best, map_location="cpu", weights_only=True, mmap=True)
        return int(content["epoch"])
    except Exception as error:  # torch raises nearly anything on a damaged file
        raise InputError(f"{best} is no readable checkpoint: it is damaged.") from error
