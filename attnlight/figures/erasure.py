"""Measures of rankings and comparisons of rankings, from columns of erasure records."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.tables import Rows

# Rows whose decision a ranking never flips: `listwise` excludes them from all rankings (Serrano &
# Smith 2019, text), `column` from this ranking (their code), where the record is undefined; `one`
# counts them as if all items had to be erased (Mohankumar et al. 2020).
NeverFlipPolicy = Literal["listwise", "column", "one"]

SCORES = ("attention", "gradient", "gradient_x_attention")
ORDERS = (*SCORES, "random_first")
ALL = (*ORDERS, "minimal")
WORDS = {  # of `random`, the mean over random orders, `random_first` is the first order
    "attention": "attention",
    "gradient": "gradient",
    "gradient_x_attention": "gradient × attention",  # noqa: RUF001
    "random": "random, mean",
    "random_first": "random",
    "minimal": "minimum",
}
# The ranking that is expected to flip decisions with fewer items comes first.
PAIRS = (
    ("gradient", "attention"),
    ("gradient_x_attention", "attention"),
    ("gradient_x_attention", "gradient"),
)


def recorded_rankings(rows: Rows) -> list[str]:
    """The rankings with values in the record; `minimal` has some only for an affine readout."""
    return [name for name in ALL if not np.isnan(rows[f"never_flips_{name}"]).all()]


def flipped_by_all(rows: Rows) -> NDArray[np.bool_]:
    """Whether a row has several items and every recorded ranking flips its decision, (R,)."""
    flipped = [rows[f"never_flips_{name}"] == 0 for name in recorded_rankings(rows)]
    mask: NDArray[np.bool_] = np.logical_and.reduce([rows["length"] > 1, *flipped])
    return mask


def removed(
    rows: Rows, measure: str, name: str, never: NeverFlipPolicy = "listwise"
) -> NDArray[np.float64]:
    """Values of a measure for a ranking, (R,); NaN in rows of one item and in excluded rows.

    The measure is `removed_fraction`, `removed_mass`, `needs_all` or `never_flips`.
    """
    values = rows[f"{measure}_{name}"].astype(np.float64)
    counted = flipped_by_all(rows) if never == "listwise" else rows["length"] > 1
    if never == "one":
        values = np.where(rows[f"never_flips_{name}"] == 1, 1.0, values)
    return np.where(counted, values, np.nan)


def steps(rows: Rows, name: str) -> NDArray[np.float64]:
    """Items that a ranking erases until the decision flips, (R,); NaN in rows of one item.

    Infinite if the decision never flips.
    """
    column = "minimal_count" if name == "minimal" else f"removed_count_{name}"
    never_flips = rows[f"never_flips_{name}"] == 1
    counts = np.where(never_flips, np.inf, rows[column].astype(np.float64))
    return np.where(rows["length"] > 1, counts, np.nan)


def beyond_minimum(rows: Rows, name: str) -> NDArray[np.float64]:
    """Items that a ranking erases beyond the minimum, (R,); NaN unless all rankings flip."""
    with np.errstate(invalid="ignore"):  # inf - inf
        excess = steps(rows, name) - steps(rows, "minimal")
    return np.where(flipped_by_all(rows), excess, np.nan)


def sooner(rows: Rows, first: str, second: str) -> NDArray[np.float64]:
    """Whether the first ranking flips with fewer items than the second, as many, or more, (R, 3).

    One-hot. As in Serrano & Smith, a ranking that never flips counts as slower than one that does;
    NaN in rows that neither flips, and in rows of one item.
    """
    a, b = steps(rows, first), steps(rows, second)
    excluded = np.isnan(a) | np.isnan(b) | (np.isinf(a) & np.isinf(b))
    outcome = np.stack([a < b, a == b, a > b], axis=1).astype(np.float64)
    outcome[excluded] = np.nan
    return outcome
