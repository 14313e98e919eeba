"""Serrano & Smith's removal of items until the decision flips: what each ranking takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.report.erasure import ALL, ORDERS, WORDS, flipped_by_all, never_flips, removed, steps
from attnlight.report.tables import percent, shares
from attnlight.statistics.bootstrap import MeanInterval
from results_page.claims import NEVER
from results_page.measures import median_interval
from results_page.posthoc import shown
from results_page.serrano import Rows, Tested
from results_page.tables import DASH, table

Values = NDArray[np.float64]


def fraction_table(found: Sequence[Tested]) -> str:
    """Mean and median share of the items that each ranking removes."""
    return _both_ways(found, "removed_fraction")


def mass_table(found: Sequence[Tested]) -> str:
    """Mean and median share of attention that each ranking removes."""
    return _both_ways(found, "removed_mass")


def last_table(found: Sequence[Tested]) -> str:
    """The share of each ranking's flips that come only with the last removal, in per cent."""
    return _by_ranking(found, lambda rows, name: removed(rows, "needs_all", name), ALL, _percent)


def never_table(found: Sequence[Tested]) -> str:
    """How often each ranking never flips the decision, in per cent."""
    return _by_ranking(found, never_flips, ALL, _percent)


def excess_table(found: Sequence[Tested]) -> str:
    """The minimum and how many items beyond it each ranking removes."""
    return _by_ranking(found, _excess, ("minimal", *ORDERS), _mean)


def _both_ways(found: Sequence[Tested], measure: str) -> str:
    """A measure of each ranking, texts that never flip left out and then counted as 1."""
    rows = []
    for tested in found:
        for never, words in NEVER.items():
            columns = [removed(tested.removal, measure, name, never) for name in ALL]
            cells = _cells(tested, columns, _with_median)
            rows.append([*tested.model.words, words, *cells])
    head = ["corpus", "model", "texts that never flip", "texts", *(WORDS[name] for name in ALL)]
    return table(head, rows, words=3)


def _cells(
    tested: Tested, columns: Sequence[Values], cell: Callable[[MeanInterval, Values], str]
) -> list[str]:
    """Number of texts, then a cell for each column."""
    means = shares(columns, tested.removal)
    cells = [cell(*pair) for pair in zip(means, columns, strict=True)]
    return [f"{means[0].defined:,}", *cells]


def _excess(rows: Rows, name: str) -> Values:
    """Items beyond the minimum, and of the minimum its own number, where all rankings flip."""
    least = np.where(flipped_by_all(rows), rows["minimal_count"], np.nan)
    return least if name == "minimal" else steps(rows, name) - least


def _by_ranking(
    found: Sequence[Tested],
    measure: Callable[[Rows, str], Values],
    names: Sequence[str],
    cell: Callable[[MeanInterval, Values], str],
) -> str:
    """A row per model, a column per ranking."""
    rows = []
    for tested in found:
        columns = [measure(tested.removal, name) for name in names]
        rows.append([*tested.model.words, *_cells(tested, columns, cell)])
    return table(["corpus", "model", "texts", *(WORDS[name] for name in names)], rows, words=2)


def _percent(mean: MeanInterval, values: Values) -> str:
    return percent(mean)


def _mean(mean: MeanInterval, values: Values) -> str:
    return shown(mean) if mean.defined else DASH


def _with_median(mean: MeanInterval, values: Values) -> str:
    defined = values[~np.isnan(values)]
    if not len(defined):
        return DASH
    low, high = median_interval(defined)
    return f"{shown(mean)}; {np.median(defined):.2f} [{low:.2f}, {high:.2f}]"
