"""What figures and tables on erasing items share: names of rankings, percentages, p-values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.tables import number

if TYPE_CHECKING:
    from attnlight.statistics.bootstrap import MeanInterval

Rows = Mapping[str, NDArray[Any]]

SCORES = ("attention", "gradient", "gradient_x_attention")
WORDS = {
    "attention": "attention",
    "gradient": "gradient",
    "gradient_x_attention": "gradient × attention",  # noqa: RUF001
    "random": "random, mean",
    "random_first": "random",
    "minimal": "minimum",
}
# Which of two rankings is expected to flip decisions with fewer items comes first.
PAIRS = (
    ("gradient", "attention"),
    ("gradient_x_attention", "attention"),
    ("gradient_x_attention", "gradient"),
)


def percent(found: MeanInterval) -> str:
    """A share with its interval in per cent, without the sign; a dash where undefined."""
    if np.isnan(found.mean):
        return number(found.mean)
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def probability(p: float) -> str:
    """A p-value to three decimals, or that it is below them; a dash where undefined."""
    return "< 0.001" if p < 0.001 else number(p)


def shares(columns: Sequence[NDArray[Any]], rows: Rows) -> list[MeanInterval]:
    """Mean and 95 % interval of each column, which share their bootstrap resamples."""
    from attnlight.statistics.bootstrap import bootstrap_means

    return bootstrap_means(np.stack(columns, axis=1).astype(np.float64), rows["index"])
