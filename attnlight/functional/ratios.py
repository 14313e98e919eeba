"""Ratios of sums over instances, as they are and resampled. Arrays are NumPy's.

Chunk F1 is 2 sum(matched) / sum(gold + found), a mean over the tokens of all sentences is
sum(values) / sum(tokens): neither is a mean over sentences, but both are ratios of two sums over
them, which is all that a resample of sentences needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlight.functional.statistics import IN_MEMORY, RESAMPLES, resampled_sums

Floats = NDArray[np.float64]


def resampled_ratios(
    tops: Floats, bottoms: Floats, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Floats, Floats]:
    """Ratios of the sums of some pairs of columns, all on the same resamples of the instances.

    An instance is left out of a pair where either of its two numbers is undefined.

    Args:
        tops: What the numerators sum, (n, M), NaN where undefined.
        bottoms: What the denominators sum, (n, M).
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws, which are those of `attnlight.functional.seeds`.

    Returns:
        The ratios as they are, (M,), and in each resample, (B, M); NaN where a denominator is not
        above 0.

    Example:
        >>> held, drawn = resampled_ratios(np.array([[2.0], [1.0]]), np.array([[2.0], [4.0]]))
        >>> held, sorted(set(drawn[:, 0].round(2).tolist()))
        (array([0.5]), [0.25, 0.5, 1.0])
    """
    undefined = np.isnan(tops) | np.isnan(bottoms)
    pairs = np.where(np.tile(undefined, 2), np.nan, np.concatenate([tops, bottoms], axis=1))
    drawn, total = resampled_sums(
        [(pairs, np.arange(len(pairs)))],
        pairs.shape[1],
        resamples=resamples,
        seed=seed,
        in_memory=len(pairs) <= IN_MEMORY,
    )
    held, resampled = (_ratios(sums, tops.shape[1]) for sums in (total, drawn))
    return held, resampled


def _ratios(sums: Floats, pairs: int) -> Floats:
    """Ratios (..., M) from the sums and counts of M numerators, then M denominators (..., 4 M)."""
    top, bottom = sums[..., :pairs], sums[..., pairs : 2 * pairs]
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
