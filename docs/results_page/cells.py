"""Cells that many tables have: rows of models, quality, means over seeds and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import Resampled, resampled_means
from results_page.archive import Archive, Experiment
from results_page.measures import resampled_auroc, resampled_quantile
from results_page.tables import (
    DASH,
    Row,
    column_mean,
    interval,
    mean_over_seeds,
    over_seeds,
    with_deviation,
)


@lru_cache(maxsize=8)
def columns(experiment: Experiment, test: str) -> dict[str, NDArray[Any]]:
    """The columns of a test, which may be of a part of the test split."""
    return experiment.test(test, partial=True)


@cache
def measured(experiment: Experiment, measure: str) -> Resampled:
    """Accuracy, F1 or AUROC on the test split; F1 is the mean over classes if there are several."""
    found = experiment.test("predictions")
    label, prediction = found["label"], found["prediction"]
    if measure == "auroc":
        return resampled_auroc(label, found["probabilities"][..., 1])
    if measure == "accuracy":
        return resampled_means((prediction == label).astype(np.float64))
    return resampled_f1(prediction, label, int(max(label.max(), prediction.max())) + 1)


def mean_of(found: Mapping[str, NDArray[Any]], column: str, places: int = 3) -> str:
    """Mean of columns (S, n) over seeds and texts; a dash where it is lacking or undefined."""
    values = found.get(column, np.array([[np.nan]])).astype(np.float64)
    return (
        DASH if np.isnan(values).all() else interval(column_mean({column: values}, column), places)
    )


FORMS: dict[str, Callable[..., object]] = {
    "seeds": lambda runs: len(runs.seeds),
    "texts": lambda runs, test: len(columns(runs, test)["index"]),
    "epochs": lambda runs: " / ".join(
        f"{epoch + 1} of {count}"
        for epoch, count in zip(runs.chosen, runs.curves.groupby("seed").size(), strict=True)
    ),
    "chosen": lambda runs: " / ".join(str(epoch + 1) for epoch in runs.chosen),
    "validation accuracy": lambda runs: "{:.3f} ± {:.3f}".format(
        *runs.curves["accuracy"].groupby("seed").max().agg(["mean", "std"])
    ),
    "quality": lambda runs, measure: over_seeds(measured(runs, measure)),
    "published": lambda runs, place: runs.published[place].get(runs.name),
    "mean": lambda runs, test, column: mean_of(columns(runs, test), column),
    "mean and deviation": lambda runs, test, column: with_deviation(
        column_mean(columns(runs, test), column), 2
    ),
    "median": lambda runs, test, column: over_seeds(
        resampled_quantile(columns(runs, test)[column])
    ),
    "with deviation": lambda runs, test, column: mean_over_seeds(columns(runs, test)[column]),
}


def by_model(
    archive: Archive, models: Mapping[str, Row], cells: Mapping[str, Sequence[str]]
) -> Iterator[Row]:
    """A row for each archived model: its words, then a cell by heading, as `tables.yaml` gives it.

    Cells of tests of a part of the split are of that part.
    """
    for name in (name for name in models if name in archive):
        row = {heading: FORMS[form](archive[name], *of) for heading, (form, *of) in cells.items()}
        yield models[name] | row
