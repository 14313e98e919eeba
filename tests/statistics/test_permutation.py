"""Permutation tests against SciPy and all exchanges, letters against all sets."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from attnlight.statistics.paired import paired_permutation_tests, shared_letters


def mean_difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    found: np.ndarray = np.mean(x - y, axis=axis)
    return found


@pytest.mark.parametrize("size", [2, 4, 9])
def test_few_instances_equal_scipy(size: int) -> None:
    values = np.random.default_rng(size).normal(size=(size, 3)).round(1)
    found = paired_permutation_tests(values, np.arange(size))
    for i, j in combinations(range(3), 2):
        expected = stats.permutation_test(
            (values[:, i], values[:, j]), mean_difference, permutation_type="samples"
        )
        assert found[i, j] == found[j, i] == pytest.approx(expected.pvalue)
    assert np.diag(found).tolist() == [1, 1, 1]


def test_rows_of_a_cluster_are_exchanged_together() -> None:
    random = np.random.default_rng(0)
    clusters = np.array([3, 3, 3, 5, 8, 8, 11, 12])
    values = random.normal(size=(8, 2)) + 0.8 * random.normal(size=(13, 2))[clusters]
    observed = abs((values[:, 0] - values[:, 1]).sum())
    sizes = []
    for signs in product([1, -1], repeat=5):
        sign = dict(zip([3, 5, 8, 11, 12], signs, strict=True))
        moved = sum(
            sign[int(c)] * (x - y) for c, (x, y) in zip(clusters, values.tolist(), strict=True)
        )
        sizes.append(abs(moved) >= observed - 1e-12)
    found = paired_permutation_tests(values, clusters)
    assert found[0, 1] == pytest.approx(np.mean(sizes))
    assert found[0, 1] != pytest.approx(paired_permutation_tests(values, np.arange(8))[0, 1])


def test_many_instances_are_near_the_exact_test() -> None:
    """12 instances, drawn rather than enumerated; with a million of rows, in blocks."""
    values = np.random.default_rng(3).normal([0, 0.5, 0.1], 1, size=(12, 3))
    exact = paired_permutation_tests(values, np.arange(12))
    drawn = paired_permutation_tests(values, np.arange(12), draws=4_000)
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(0.25 / 4_000))
    assert (drawn != exact).any()


def test_equal_columns_are_not_told_apart_despite_rounding() -> None:
    x = np.random.default_rng(0).random(200)
    values = np.stack([x, x[::-1][::-1] + 0.1 - 0.1, x + 1], axis=1)
    found = paired_permutation_tests(values, np.arange(200))
    assert found[0, 1] == 1
    assert found[0, 2] == 1 / 10_001


@pytest.mark.parametrize("seed", range(20))
def test_two_share_a_letter_exactly_if_not_told_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 8))
    apart = np.triu(random.random((size, size)) < random.random(), 1)
    apart = apart | apart.T
    letters = shared_letters(apart)
    for i, j in combinations(range(size), 2):
        assert bool({*letters[i]} & {*letters[j]}) == (not apart[i, j])
    # A letter for each set that no further column could join, by trying all sets.
    sets = [
        {*members}
        for length in range(1, size + 1)
        for members in combinations(range(size), length)
        if not apart[np.ix_(members, members)].any()
    ]
    largest = [one for one in sets if not any(one < other for other in sets)]
    used = {letter for own in letters for letter in own}
    carried = [{i for i in range(size) if letter in letters[i]} for letter in sorted(used)]
    assert sorted(map(sorted, carried)) == sorted(map(sorted, largest))


def test_letters_by_hand() -> None:
    """Three in a row, of which only the ends differ; and none at all."""
    apart = np.zeros((3, 3), dtype=bool)
    apart[0, 2] = apart[2, 0] = True
    assert shared_letters(apart) == ["a", "ab", "b"]
    assert shared_letters(np.zeros((2, 2), dtype=bool)) == ["a", "a"]
    assert shared_letters(~np.eye(60, dtype=bool))[50:53] == ["Y", "Z", "(53)"]
