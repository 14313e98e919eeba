"""Tables of the page and the format of their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.report.tables import markdown_table
from attnlight.statistics.bootstrap import MeanInterval, percentile_interval
from attnlight.statistics.seed_bootstrap import resample_seeds, resampled_means

DASH = "–"  # noqa: RUF001
CLASSES = ("negative", "positive")
# A statistic of S runs, (S,), and its value in each of B bootstrap resamples of the texts, (B, S),
# with the draws of `attnlight.statistics.seed_bootstrap`.
Resampled = tuple[NDArray[np.float64], NDArray[np.float64]]
Row = Mapping[str, object]  # cells by heading


def table(rows: Iterable[Row], left: int = 1) -> str:
    """A Markdown table, the first columns aligned left.

    Args:
        rows: The cells of each row by heading: text verbatim; counts with commas; a number with
            three decimals; an estimate with its interval, two decimals each; None or NaN as a dash.
            Missing cells are empty. Text after # in a heading is not shown, so that two columns may
            have the same heading.
        left: Number of columns aligned left.
    """
    rows = [*rows]
    head = list(dict.fromkeys(heading for row in rows for heading in row))
    cells = [[_text(row.get(heading, "")) for heading in head] for row in rows]
    titles = [heading.partition("#")[0] for heading in head]
    return markdown_table(titles, cells, min(left, len(head)))


def _text(cell: object) -> str:
    match cell:
        case MeanInterval():
            return interval(cell)
        case int() | np.integer():
            return f"{cell:,}"
        case float() | None:
            return number(cell)
    return str(cell)


def number(value: float | None, places: int = 3) -> str:
    """The value with so many decimals, zero without a sign; a dash if undefined."""
    return DASH if pd.isna(value) else f"{round(value, places) + 0.0:.{places}f}"


def interval(estimate: MeanInterval, places: int = 2) -> str:
    """An estimate with its interval, or without one that is undefined; a dash if undefined."""
    if np.isnan(estimate.low):
        return number(estimate.mean, places)
    mean, low, high = (number(value, places) for value in estimate[:3])
    return f"{mean} [{low}, {high}]".replace("inf", "∞")


def over_seeds(statistic: Resampled) -> str:
    """Mean and standard deviation over seeds, and interval over instances; a dash if undefined."""
    values, resampled = statistic
    if np.isnan(values).any():
        return DASH
    low, high = percentile_interval(resampled.mean(axis=1))
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread} [{low:.3f}, {high:.3f}]"


def over_seeds_and_texts(statistic: Resampled) -> MeanInterval:
    """Mean over seeds, with an interval that resamples seeds and, for all alike, instances."""
    ((mean, replicates),) = resample_seeds([statistic])
    return MeanInterval(mean, *percentile_interval(replicates), len(statistic[0]))


def mean_over_seeds(values: NDArray[np.floating]) -> str:
    """`over_seeds` of means over the texts whose values (S, n) are defined in every seed."""
    return over_seeds(resampled_means(values[:, ~np.isnan(values).any(axis=0)].astype(np.float64)))
