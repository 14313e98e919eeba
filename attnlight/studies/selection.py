"""Select the adversary of a term on validation, as Wiegreffe & Pinter's table 4."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from attnlight.errors import InputError
from attnlight.studies.plan import PlannedRun

REQUIRED_JS = 0.4
Measures = dict[str, Any]  # numbers, None where undefined, or a list with one per head


@dataclass(frozen=True)
class Selection:
    """The chosen weight of one attention term."""

    lambda_: float  # the weight
    runs: Mapping[int, str]  # the adversaries of this weight by seed
    reached: bool  # whether the mean validation JS is at least 0.4; if not, it is the maximum

    def guide_run(self, seed: int) -> str:
        """The adversary that guides a run: that of its seed, or else the first."""
        return self.runs.get(seed) or next(iter(self.runs.values()))


def select(runs: Sequence[PlannedRun], measures: Mapping[str, Measures]) -> Selection | None:
    """Select the lambda of one term by means over seeds on validation.

    Among the lambdas above 0 whose JS is at least 0.4 the highest F1 wins (of the second of two
    classes, else macro; of chunks), ties are broken by lower TVD; if there is none, the largest JS
    wins. A lambda with a run that could not be measured is selected last.

    `runs` are finished adversaries of one term and one base, `measures` their measures on validation
    by name. None if no lambda is above 0.
    """
    import pandas as pd

    grid = [run for run in runs if run.lambda_]
    if not grid:
        return None
    names = ["f1", "macro_f1", "attention_js", "prediction_tvd"]
    table = pd.DataFrame([measures[run.name] for run in grid], columns=names, dtype=float)
    table["f1"] = table["f1"].fillna(table["macro_f1"])
    # A mean over seeds is undefined if the value of one seed is.
    weights = [run.lambda_ for run in grid]
    means = table.groupby(weights).agg(lambda column: column.mean(skipna=False))
    far = means[means["attention_js"] >= REQUIRED_JS]
    if len(far):
        best = far.sort_values(["f1", "prediction_tvd"], ascending=[False, True]).index[0]
    else:
        best = means["attention_js"].fillna(float("-inf")).idxmax()
    chosen = {run.seed: run.name for run in grid if run.lambda_ == best}
    return Selection(float(best), chosen, reached=bool(len(far)))


def chosen_epoch(best: Path) -> int:
    """The epoch, from 0, of a checkpoint."""
    try:  # mapped, so that no tensor is read; torch does not verify the checksum of the rest
        with ZipFile(best) as file:
            file.read(next(name for name in file.namelist() if name.endswith("/data.pkl")))
        content = torch.load(best, map_location="cpu", weights_only=True, mmap=True)
        return int(content["epoch"])
    except Exception as error:  # torch raises many types on a damaged file
        raise InputError(f"{best} is not a readable checkpoint: it is damaged.") from error
