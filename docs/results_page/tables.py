"""How the page writes figures; its tables are the report's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import MeanInterval, percentile_interval
from attnlight.statistics.seed_bootstrap import resampled_means
from results_page.measures import Resampled

DASH = "–"  # noqa: RUF001
CLASSES = ("negative", "positive")


def outcome(
    name: str,
    measure: str,
    bound: float,
    values: Sequence[float],
    most: bool = False,
    digits: int = 3,
) -> list[str]:
    """A row that holds the mean of some values against a bound."""
    found = float(np.mean(values))
    met = found <= bound if most else found >= bound
    words = f"{'at most' if most else 'at least'} {bound:g}"
    return [name, measure, words, f"{found:.{digits}f}", "yes" if met else "**no**"]


def number(value: float) -> str:
    """Three decimals; a dash where undefined."""
    return DASH if np.isnan(value) else f"{value:.3f}"


def rounded(value: float, places: int = 2) -> str:
    """So many decimals, nought without a sign."""
    return f"{round(value, places) + 0.0:.{places}f}"


def shown(found: MeanInterval, places: int = 2) -> str:
    """An estimate with its interval; a dash where undefined."""
    if np.isnan(found.mean):
        return DASH
    mean, low, high = (rounded(value, places) for value in found[:3])
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
