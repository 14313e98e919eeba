"""Verdicts on attribution methods against their definition."""

from math import nan

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.records import Record
from attnlight.statistics.sanity import sanity_verdicts

Column = NDArray[np.float64]


def record(index: Column | None = None, **columns: Column) -> Record:
    """A record of two steps; columns are named `<step>_<method>`, with signs."""
    rows = len(next(iter(columns.values())))
    known = {f"signed_{name}": values for name, values in columns.items()}
    methods = dict.fromkeys(name.partition("_")[2] for name in columns)
    keys = np.arange(rows) if index is None else index
    return Record({"index": keys, **known}, {"parts": ["decoder", "rest"], "methods": methods})


def around(mean: float, spread: float = 0.1, rows: int = 200) -> Column:
    values = np.random.default_rng(0).normal(size=rows)
    return mean + spread * (values - values.mean())


@pytest.mark.parametrize(
    ("randomised", "seeds", "verdict"),
    [
        (0.0, 0.8, "passes"),
        (-0.9, 0.8, "passes"),
        (0.6, 0.8, "fails"),
        (0.405, 0.8, "passes"),  # the interval reaches below half of 0.8
        (0.42, 0.8, "fails"),
        (1.0, 0.199, "undecidable"),
        (0.0, 0.201, "passes"),
        (0.9, -0.9, "undecidable"),
        (0.9, nan, "undecidable"),
        (nan, 0.9, "undecidable"),
    ],
)
def test_half_of_two_seeds_decides(randomised: float, seeds: float, verdict: str) -> None:
    columns = {"1_a": around(1.0), "2_a": around(randomised), "seeds_a": around(seeds)}
    (found,) = sanity_verdicts(record(**columns)).values()
    assert found.verdict == verdict
    assert found.randomised.mean == pytest.approx(randomised, nan_ok=True)
    assert found.seeds.mean == pytest.approx(seeds, nan_ok=True)
    if not np.isnan(randomised):
        half = 1.96 * 0.1 / np.sqrt(200)
        ends = found.randomised.low, found.randomised.high
        assert ends == pytest.approx((randomised - half, randomised + half), abs=0.004)


def test_the_last_step_counts_for_each_method_by_itself() -> None:
    of_a = {"1_a": around(0.0), "2_a": around(0.9), "seeds_a": around(0.9)}
    of_b = {"1_b_c": around(0.9), "2_b_c": around(0.0), "seeds_b_c": around(0.9)}
    found = {label: x.verdict for label, x in sanity_verdicts(record(**of_a, **of_b)).items()}
    assert found == {"a": "fails", "b_c": "passes"}


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("column", ["2_a", "seeds_a"])
def test_one_text_decides_nothing(column: str, rows: int) -> None:
    """However many rows it has: a mean of one text has no interval."""
    columns = {"2_a": around(0.0, rows=12), "seeds_a": around(0.9, rows=12)}
    index = np.arange(12)
    index[:rows] = 0
    decided = sanity_verdicts(record(index, **columns))
    columns[column][rows:] = nan
    undecided = sanity_verdicts(record(index, **columns))
    assert [found["a"].verdict for found in (decided, undecided)] == ["passes", "undecidable"]


def test_sizes_are_judged_by_their_own_columns() -> None:
    of_signs = record(**{"2_a": around(0.0), "seeds_a": around(0.9)})
    of_signs.columns.update(sizes_2_a=around(0.8), sizes_seeds_a=around(0.9))
    assert sanity_verdicts(of_signs)["a"].verdict == "passes"
    assert sanity_verdicts(of_signs, "sizes")["a"].verdict == "fails"


def test_intervals_resample_texts_not_rows() -> None:
    """Rows of a text that are alike are one observation."""
    values = around(0.45, spread=0.3, rows=20)
    seeds = np.full(2000, 0.8)
    columns = {"2_a": np.repeat(values, 100), "seeds_a": seeds}
    whole = sanity_verdicts(record(np.repeat(np.arange(20), 100), **columns))["a"]
    assert whole.verdict == "passes"
    assert sanity_verdicts(record(**columns))["a"].verdict == "fails"
