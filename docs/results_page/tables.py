"""Tables of the page and the format of their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.tables import estimate, markdown_table
from attnlight.report.measure_bounds import UNIT, measure_bounds
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.seed_bootstrap import (
    Resampled,
    SeedInterval,
    resampled_means,
    seed_interval,
    seeds_then_instances,
)

DASH = "–"  # noqa: RUF001
CLASSES = ("negative", "positive")
# Jain & Wallace's bins of maximum attention.
BINS = ("[0, 0.25)", "[0.25, 0.5)", "[0.5, 0.75)", "[0.75, 1]")
Row = dict[str, Any]  # cells by heading


def table(rows: Iterable[Row], left: int = 1) -> str:
    """A Markdown table, the first columns aligned left.

    Args:
        rows: The cells of each row by heading: text verbatim; counts with commas; a number with
            three decimals; an estimate with its interval, two decimals each; None or NaN as a dash.
            Missing cells are empty. Text after # in a heading is not shown, so that two columns may
            have the same heading.
        left: Number of columns aligned left.
    """
    rows = [*rows] or [{"runs": "none is archived yet"}]
    head = list(dict.fromkeys(heading for row in rows for heading in row))
    cells = [[_text(row.get(heading, "")) for heading in head] for row in rows]
    titles = [heading.partition("#")[0] for heading in head]
    return markdown_table(titles, cells, min(left, len(head)))


def _text(cell: object) -> str:
    match cell:
        case MeanInterval() | SeedInterval():
            return interval(cell)
        case int() | np.integer():
            return f"{cell:,}"
        case float() | None:
            return number(cell)
    return str(cell)


def number(value: float | None, places: int = 3) -> str:
    """The value with so many decimals, zero without a sign; a dash if undefined."""
    if value is None or np.isnan(value):
        return DASH
    return f"{round(value, places) + 0.0:.{places}f}"


def interval(mean: MeanInterval | SeedInterval, places: int = 2) -> str:
    """An estimate with its interval, over two seeds with both values; a dash if undefined."""
    if isinstance(mean, MeanInterval) and np.isnan(mean.low):
        return number(mean.mean, places)
    return estimate(mean, partial(number, places=places)).replace("inf", "∞")


def with_deviation(mean: SeedInterval, places: int = 3) -> str:
    """`interval` with the standard deviation over seeds, where these have an interval."""
    value, _, ends = interval(mean, places).partition(" ")
    spread = "" if np.isnan(mean.std) or np.isnan(mean.low) else f" ± {number(mean.std, places)}"
    return f"{value}{spread} {ends}"


def over_seeds(statistic: Resampled, bounds: tuple[float, float] = UNIT) -> str:
    """Mean and standard deviation over seeds, with the interval; a dash if a seed is undefined."""
    if np.isnan(statistic[0]).any():
        return DASH
    return with_deviation(seed_interval(statistic, bounds=bounds))


def mean_over_seeds(values: NDArray[Any], bounds: tuple[float, float] = UNIT) -> str:
    """`over_seeds` of means over the texts whose values (S, n) are defined in every seed."""
    defined = ~np.isnan(values).any(axis=0)
    return over_seeds(resampled_means(values[:, defined].astype(np.float64)), bounds)


def column_mean(
    columns: Mapping[str, NDArray[Any]], name: str, clusters: NDArray[np.int64] | None = None
) -> SeedInterval:
    """Mean of a column (S, n) over seeds and texts, clipped to the range of its measure."""
    return seeds_then_instances(columns[name], clusters, bounds=measure_bounds(name))
