"""Which texts are compared where some rankings never flip the decision, against plain loops."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.figures.erasure import (
    ALL,
    ORDERS,
    NeverFlipPolicy,
    flipped_by_all,
    recorded_rankings,
    removed,
    sooner,
    steps,
)
from tests.report.fake import Rows, rows_of


def listwise(rows: Rows, row: int) -> bool:
    return rows["length"][row] > 1 and all(rows[f"never_flips_{n}"][row] == 0 for n in ALL)


def test_texts_that_every_ranking_flips() -> None:
    rows = rows_of("decision_flip", n=300)
    found = flipped_by_all(rows)
    assert found.tolist() == [listwise(rows, row) for row in range(300)]
    assert 100 < found.sum() < 250


@pytest.mark.parametrize("never", ["listwise", "column", "one"])
def test_what_becomes_of_texts_that_never_flip(never: NeverFlipPolicy) -> None:
    rows = rows_of("decision_flip", n=300)
    for name in ALL:
        found = removed(rows, "removed_mass", name, never)
        for row in range(300):
            own = float(rows[f"removed_mass_{name}"][row])
            stuck = rows[f"never_flips_{name}"][row] == 1
            if rows["length"][row] == 1 or (never == "listwise" and not listwise(rows, row)):
                own = math.nan
            elif never == "one" and stuck:
                own = 1.0
            np.testing.assert_equal(found[row], own)


def test_an_unknown_minimum_drops_nothing() -> None:
    rows = rows_of("decision_flip", n=200)
    for name in [n for n in rows if "minimal" in n or n.startswith("excess")]:
        rows[name] = np.full(200, np.nan, dtype=np.float32)
    assert recorded_rankings(rows) == list(ORDERS)
    assert flipped_by_all(rows).sum() > 50


def counts(a: list[float], b: list[float], length: int = 9) -> Rows:
    """Counts of two rankings, -1 where they never flip and -2 where they are undefined."""

    def column(values: NDArray[np.float64]) -> Rows:
        return {
            "removed_count": np.where(values < 0, np.nan, values),
            "never_flips": np.where(values == -2, np.nan, values == -1),
        }

    pair = {"gradient": column(np.array(a)), "attention": column(np.array(b))}
    rows = {f"{m}_{name}": v for name, columns in pair.items() for m, v in columns.items()}
    return rows | {"length": np.full(len(a), length)}


def test_who_is_sooner_counts_never_as_later() -> None:
    rows = counts([1, 2, 3, -1, 4, -1, -2, 2], [2, 2, 1, 5, -1, -1, 3, -2])
    found = sooner(rows, "gradient", "attention")
    nothing = [math.nan] * 3
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], nothing, nothing, nothing]
    np.testing.assert_equal(found, np.array(expected, dtype=float))
    np.testing.assert_equal(steps(rows, "gradient")[[3, 6]], [math.inf, math.nan])
    never = removed(rows, "never_flips", "attention", "column")
    np.testing.assert_equal(never[[4, 7]], [1.0, math.nan])


def test_texts_of_one_item_are_left_out() -> None:
    rows = counts([1.0, -1.0], [1.0, -1.0], length=1)
    assert np.isnan(sooner(rows, "gradient", "attention")).all()
    assert np.isnan(removed(rows, "never_flips", "gradient", "column")).all()
