"""How the page writes numbers; its tables are the report's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.report.tables import markdown_table
from attnlight.statistics.bootstrap import MeanInterval, percentile_interval
from attnlight.statistics.seed_bootstrap import resampled_means

DASH = "–"  # noqa: RUF001
CLASSES = ("negative", "positive")
# A statistic of S runs, (S,), and the same in each of B bootstrap resamples of the texts, (B, S),
# on the draws of `attnlight.statistics.seed_bootstrap`.
Resampled = tuple[NDArray[np.float64], NDArray[np.float64]]
Row = Mapping[str, object]  # cells by heading


def table(rows: Iterable[Row], left: int = 1) -> str:
    """A Markdown table, the first columns aligned left.

    Args:
        rows: The cells of each row by heading: text as it is; counts with commas; a number with
            three decimals; an estimate with its interval, two decimals each; None, or NaN, as a
            dash. A cell that a row lacks is empty. What follows # in a heading is not shown, so
            that two columns may have one heading.
        left: How many columns are aligned left.
    """
    rows = [*rows]
    head = list(dict.fromkeys(heading for row in rows for heading in row))
    cells = [[_text(row.get(heading, "")) for heading in head] for row in rows]
    return markdown_table([heading.partition("#")[0] for heading in head], cells, left)


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
    """So many decimals, nought without a sign; a dash where undefined."""
    return DASH if pd.isna(value) else f"{round(value, places) + 0.0:.{places}f}"


def interval(found: MeanInterval, places: int = 2) -> str:
    """An estimate with its interval; a dash where undefined."""
    if np.isnan(found.mean):
        return DASH
    mean, low, high = (number(value, places) for value in found[:3])
    return f"{mean} [{low}, {high}]".replace("inf", "∞")


def over_seeds(found: Resampled) -> str:
    """Mean over seeds, standard deviation over seeds, and interval over instances."""
    values, drawn = found
    low, high = percentile_interval(drawn.mean(axis=1))
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread} [{low:.3f}, {high:.3f}]"


def of_means(values: NDArray[np.floating]) -> str:
    """`over_seeds` of means over the texts that are defined in every seed, (S, n)."""
    return over_seeds(resampled_means(values[:, ~np.isnan(values).any(axis=0)].astype(np.float64)))
