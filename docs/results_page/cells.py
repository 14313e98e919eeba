"""Cells that many tables have: rows of models, quality, means over seeds and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, reduce
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from attnlight.figures.erasure import NeverFlipPolicy, removed
from attnlight.report.measure_bounds import measure_bounds
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.f1 import resampled_f1
from attnlight.statistics.seed_bootstrap import Resampled, resampled_means
from results_page.archive import Archive, Condition, Experiment
from results_page.measures import (
    resampled_auroc,
    resampled_average_precision,
    resampled_quantile,
)
from results_page.tables import (
    DASH,
    Row,
    column_mean,
    interval,
    mean_over_seeds,
    number,
    over_seeds,
    with_deviation,
)

_SIGNIFICANT = 0.05
_BY_SCORE = {"auroc": resampled_auroc, "auprc": resampled_average_precision}


@lru_cache(maxsize=8)
def columns(experiment: Experiment, test: str, *, partial: bool = True) -> dict[str, NDArray[Any]]:
    """The columns of a test, which may be of a part of the test split if `partial`."""
    return experiment.test(test, partial=partial)


@cache
def measured(experiment: Experiment, measure: str) -> Resampled:
    """Accuracy, F1, AUROC or AUPRC on the test split; F1 is the mean over classes if several."""
    found = experiment.test("predictions")
    label, prediction = found["label"], found["prediction"]
    if measure in _BY_SCORE:
        return _BY_SCORE[measure](label, found["probabilities"][..., 1])
    if measure == "accuracy":
        return resampled_means((prediction == label).astype(np.float64))
    return resampled_f1(prediction, label, int(max(label.max(), prediction.max())) + 1)


def mean_of(found: Mapping[str, NDArray[Any]], column: str, places: int = 3) -> str:
    """Mean of columns (S, n) over seeds and texts; a dash where it is lacking or undefined."""
    values = found.get(column, np.array([[np.nan]])).astype(np.float64)
    return (
        DASH if np.isnan(values).all() else interval(column_mean({column: values}, column), places)
    )


def significant(p: NDArray[np.float64]) -> str | None:
    """Share with p at most 0.05, (S, n), unadjusted and adjusted (Benjamini & Hochberg) by seed.

    None if no p-value is defined.
    """
    runs = [defined for run in p if len(defined := run[~np.isnan(run)])]
    both = runs, [false_discovery_control(run) for run in runs]
    shares = [np.mean([(run <= _SIGNIFICANT).mean() for run in found]) for found in both if runs]
    return " / ".join(f"{share:.2f}" for share in shares) or None


def searched(model: Experiment, test: str, column: str) -> NDArray[Any]:
    """A column (S, n) of a test; NaN on texts that it left out, or without the published search."""
    found = columns(model, test)
    texts = columns(model, "predictions", partial=False)["index"]
    whole = np.full((len(found[column]), len(texts)), np.nan)
    without = np.isnan(found.get("search_js", 0.0))
    whole[:, np.searchsorted(texts, found["index"])] = np.where(without, np.nan, found[column])
    return whole


def _js(runs: Experiment, column: str, less: str = "", by_class: bool = False) -> str:
    """Mean JS of the texts searched, less that of another column or by predicted class."""
    values = searched(runs, "adversarial_attention", column)
    values = values - searched(runs, "adversarial_attention", less) if less else values
    classes = columns(runs, "predictions")["prediction"]
    groups = [classes == x for x in (0, 1)] if by_class else [np.full(values.shape, True)]
    parts = (np.where(group, values, np.nan) for group in groups)
    means = (seeds_then_instances(part, bounds=measure_bounds("js")) for part in parts)
    return " / ".join(map(interval, means))


def _removed(runs: Experiment, measure: str, ranking: str, less: str = "") -> str:
    """Mean `removed_fraction` or `never_flips` of a ranking, less that of another.

    The fraction of a text whose decision a ranking never flips is 1.
    """
    never: NeverFlipPolicy = "column" if measure == "never_flips" else "one"
    found = {x: y for x, y in columns(runs, "decision_flip").items() if x != "index"}
    rows = [{x: y[seed] for x, y in found.items()} for seed in range(len(runs.seeds))]
    values, *other = (
        np.stack([removed(one, measure, x, never) for one in rows]) for x in (ranking, less) if x
    )
    bounds = (-1, 1) if other else measure_bounds(f"{measure}_{ranking}")
    return interval(seeds_then_instances(values - sum(other), bounds=bounds), 3)


def _published(runs: Experiment, place: str, *keys: str) -> object:
    """A figure of `place`, such as `mohankumar.sst`, in published.yaml, of an experiment or condition.

    Of several figures, those that have no sign of their spread.
    """
    name = (runs.name.partition("-")[2] or runs.name).removesuffix("_released")
    found: Any = reduce(getitem, place.split("."), runs.published).get(name)
    for key in keys:
        found = (found or {}).get(key)
    return " / ".join((x or DASH).split()[0] for x in found) if isinstance(found, list) else found


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
    "published": _published,
    "mean": lambda runs, test, column, places=3: mean_of(columns(runs, test), column, places),
    "by seed": lambda runs, test, column: " / ".join(
        number(mean, 2) for mean in np.nanmean(columns(runs, test)[column], axis=1)
    ),
    "significant": lambda runs, test, column: significant(columns(runs, test)[column]),
    "mean and share": lambda runs, test, column, p: "{} ({})".format(
        interval(column_mean(columns(runs, test), column)),
        (significant(columns(runs, test)[p]) or DASH).partition(" / ")[0],
    ),
    "mean and deviation": lambda runs, test, column: with_deviation(
        column_mean(columns(runs, test), column), 2
    ),
    "median": lambda runs, test, column: over_seeds(
        resampled_quantile(columns(runs, test)[column])
    ),
    "with deviation": lambda runs, test, column: mean_over_seeds(columns(runs, test)[column]),
    "JS": _js,
    "removed": _removed,
}


def by_model(
    archive: Archive, models: Mapping[str, Row | Condition], columns: Mapping[str, Sequence[Any]]
) -> Iterator[Row]:
    """A row for each archived model: its words, then a cell by heading, as `tables.yaml` gives it.

    Cells of tests of a part of the split are of that part. A condition of a study also says how many
    of its planned seeds are archived.
    """
    for name in (name for name in models if name in archive):
        row = {heading: FORMS[form](archive[name], *of) for heading, (form, *of) in columns.items()}
        yield archive.words(name, models[name]) | row
