import numpy as np
import pytest

from attnlight.data.selection import Kept, Selection, choose
from attnlight.errors import InputError

MASK = (1 << 64) - 1


def splitmix(state: int) -> int:
    """Splitmix64's step in Python integers, as its authors give it in C."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [0, 1378, -5])
def test_choice_takes_the_smallest_splitmix_hashes(seed: int) -> None:
    rows = np.arange(0, 3000, 3)
    start = splitmix(seed & MASK)
    expected = sorted(sorted(rows.tolist(), key=lambda row: splitmix((start + row) & MASK))[:100])
    assert choose(rows, 100, seed).tolist() == expected


def test_splitmix_itself_gives_the_published_first_value() -> None:
    assert splitmix(0) == 0xE220A8397B1DCDAF  # first output of the reference code for seed 0


def test_choice_depends_on_row_numbers_not_on_company() -> None:
    all_rows = np.arange(10_000)
    chosen = set(choose(all_rows, 1000, 3).tolist())
    assert chosen > set(choose(all_rows, 100, 3).tolist())
    without = np.array([row for row in all_rows if row % 7])
    assert set(choose(without, 500, 3).tolist()) <= {
        *chosen
    }  # fewer rows, larger hashes are never taken before smaller ones


def test_choice_is_spread_and_changes_with_the_seed() -> None:
    first, second = (choose(np.arange(100_000), 20_000, seed) for seed in (0, 1))
    tenths = np.bincount(first // 10_000, minlength=10)
    assert np.all(np.abs(tenths - 2000) < 5 * np.sqrt(2000 * 0.8))
    common = len(np.intersect1d(first, second))
    assert abs(common - 4000) < 5 * np.sqrt(4000)


def test_length_limits_are_inclusive_and_counted() -> None:
    kept = Kept("split train", np.array([2, 3, 5, 7, 8]))
    Selection(min_tokens=2, max_tokens=4).by_length(kept, np.array([1, 2, 4, 5, 0], np.int32))
    assert kept.rows.tolist() == [3, 5]
    assert kept.counts() == {
        "rows": 2,
        "dropped": 3,
        "dropped_by": {"min_tokens": 2, "max_tokens": 1},
    }


@pytest.mark.parametrize(
    ("selection", "filter_"),
    [(Selection(min_tokens=9), "min_tokens: 9"), (Selection(max_tokens=1), "max_tokens: 1")],
)
def test_a_filter_that_leaves_nothing_is_named(selection: Selection, filter_: str) -> None:
    kept = Kept("split test of corpus", np.arange(2))
    with pytest.raises(
        InputError, match=f"no text of split test of corpus is left after {filter_}"
    ):
        selection.by_length(kept, np.array([3, 4], np.int32))


def test_validation_and_training_share_no_row() -> None:
    train = Kept("split train", np.arange(10, 110))
    validation = Selection(validation_fraction=0.25, seed=7).split_off(train)
    assert len(validation.rows) == 25
    assert sorted([*train.rows, *validation.rows]) == list(range(10, 110))
    assert validation.counts()["dropped"] == train.counts()["dropped"] == 0


@pytest.mark.parametrize(("amount", "left"), [(0.2, 20), (1.0, 100), (7, 7), (100, 100)])
def test_subset_takes_a_share_or_a_number(amount: float, left: int) -> None:
    kept = Kept("split test", np.arange(100))
    Selection(subset={"test": amount}).cut("test", kept)
    assert len(kept.rows) == left


def test_subset_larger_than_the_split_is_refused() -> None:
    with pytest.raises(InputError, match="subset of test is 6, but split test has 5 texts"):
        Selection(subset={"test": 6}).cut("test", Kept("split test", np.arange(5)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_tokens": 5, "max_tokens": 4}, "no text fits"),
        ({"validation_fraction": 1.0}, "between 0 and 1"),
        ({"subset": {"test": 1.5}}, "subset of test is 1.5"),
        ({"subset": {"test": 0}}, "subset of test is 0"),
    ],
)
def test_values_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Selection(**options)
