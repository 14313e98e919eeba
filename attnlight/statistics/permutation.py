"""Permutation tests between several columns of the same instances. Arrays are NumPy's."""

from itertools import combinations
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
_BLOCK = 1 << 22  # signs drawn at once
_ROUNDING = 1e-9  # of the sum of all sizes: differences of sums that are equal but for rounding


def paired_permutation_tests(
    values: NDArray[np.floating], clusters: NDArray[np.int64], *, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference in mean of every two columns, paired by row.

    If two columns do not differ, their values may be exchanged in any cluster, all its rows together,
    which changes the sign of the cluster's difference. The p-value is the share of such exchanges
    whose difference is at least as large as the observed one: of all of them up to so many `draws`,
    else of random ones and the observed one.

    Args:
        values: (R, M), all defined.
        clusters: Cluster of each row, (R,), in ascending order.
        draws: Number of random exchanges, which all pairs share.

    Returns:
        (M, M), symmetric, 1 on the diagonal.
    """
    sums = np.add.reduceat(values, np.flatnonzero(np.diff(clusters, prepend=-1)), dtype=np.float64)
    total = sums.sum(axis=0)
    least = np.abs(total[:, None] - total) - _ROUNDING * np.abs(sums).sum()
    size, random = len(sums), np.random.default_rng(0)
    exact = 2**size <= draws
    number, reached = 2**size if exact else draws, np.zeros_like(least)
    for start in range(0, number, block := max(1, _BLOCK // size)):
        count = min(block, number - start)
        if exact:
            exchanged = np.arange(start, start + count)[:, None] >> np.arange(size) & 1
        else:
            exchanged = random.integers(0, 2, (count, size), dtype=np.int8)
        signed = (1.0 - 2.0 * exchanged) @ sums  # (count, M)
        for i, column in enumerate(signed.T):
            reached[i] += (np.abs(column[:, None] - signed) >= least[i]).sum(axis=0)
    p_values: NDArray[np.float64] = reached / number if exact else (reached + 1) / (number + 1)
    return p_values


def shared_letters(apart: NDArray[np.bool_]) -> list[str]:
    """Letters of M columns, such that two share a letter exactly if they are not told apart.

    A letter stands for a largest set of columns of which no two are told `apart`, (M, M), symmetric
    (Piepho 2004); letters are in the order of the first columns of their sets.
    """
    groups = [frozenset(range(len(apart)))]
    for pair in combinations(range(len(apart)), 2):
        if apart[pair]:
            split = {
                part
                for group in groups
                for part in ([group - {one} for one in pair] if group >= {*pair} else [group])
            }
            groups = [group for group in split if not any(group < other for other in split)]
    letters = [""] * len(apart)
    for number, group in enumerate(sorted(groups, key=sorted)):
        letter = ascii_letters[number] if number < len(ascii_letters) else f"({number + 1})"
        for member in group:
            letters[member] += letter
    return letters
