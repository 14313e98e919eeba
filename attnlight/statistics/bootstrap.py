"""Intervals of means. Arrays are NumPy's: records are read without a device."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1_000
CONFIDENCE = 0.95
IN_MEMORY = 100_000
_PIECE = 2_048
Floats = NDArray[np.float64]


class MeanInterval(NamedTuple):
    """A mean with its percentile interval.

    Attributes:
        mean: Mean of the defined values; NaN where there is none.
        low: Lower end of the interval.
        high: Upper end of the interval.
        defined: How many values the mean is over.
    """

    mean: float
    low: float
    high: float
    defined: int


_BLOCK = 64  # resamples whose counts are multiplied at once
_CACHED = 2**25  # bytes of counts above which they are drawn again each time


@functools.lru_cache(maxsize=8)
def resampled_counts(clusters: int, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.uint8]:
    """How often each bootstrap resample draws each of n clusters, (B, n).

    Means, ratios and quantiles follow from these counts, so that all statistics of one set of
    clusters share their draws. No count exceeds 255: with so many clusters none is drawn as often.
    """
    random = np.random.default_rng(seed)
    counts = np.empty((resamples, clusters), dtype=np.uint8)
    for row in counts:
        row[:] = np.bincount(random.integers(0, clusters, size=clusters), minlength=clusters)
    counts.flags.writeable = False
    return counts


def bootstrap_means(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64],
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[MeanInterval]:
    """Mean of each column with a percentile interval that resamples whole clusters.

    Rows of one cluster (the tokens of a sentence) are not independent, so clusters are drawn with
    replacement, each with all its rows. NaN is left out of the mean. Above 100,000 clusters each
    draw is replaced by an independent Poisson(1) weight per cluster.

    Args:
        values: (R, M), NaN where undefined.
        clusters: Cluster of each row, (R,), in ascending order.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Returns:
        One interval per column.
    """
    return bootstrap_pieces(
        [(values, clusters)],
        values.shape[1],
        resamples=resamples,
        confidence=confidence,
        seed=seed,
        in_memory=len(np.unique(clusters)) <= IN_MEMORY,
    )


def bootstrap_pieces(
    pieces: Iterable[tuple[NDArray[np.floating], NDArray[np.int64]]],
    columns: int,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    in_memory: bool,
) -> list[MeanInterval]:
    """`bootstrap_means` over rows that come in pieces, in ascending order of cluster.

    Args:
        pieces: Values (r, M) and clusters (r,) of each piece; a cluster may span two pieces.
        columns: M.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.
        in_memory: True draws clusters exactly, holding the cluster sums in memory; False weighs
            each cluster by Poisson(1), in constant memory.
    """
    drawn, total = resampled_sums(
        pieces, columns, resamples=resamples, seed=seed, in_memory=in_memory
    )
    drawn_means, means = (divide(*np.split(sums, 2, axis=-1)) for sums in (drawn, total))
    ends = [percentile_interval(column, confidence) for column in drawn_means.T]
    found = zip(means.tolist(), ends, total[columns:].tolist(), strict=True)
    return [MeanInterval(mean, *interval, int(count)) for mean, interval, count in found]


def resampled_sums(
    pieces: Iterable[tuple[NDArray[np.floating], NDArray[np.int64]]],
    columns: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    in_memory: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of the defined values in each bootstrap resample, from which any ratio of means follows.

    All columns share the draws of a resample, so that differences and ratios of columns are paired.

    Args:
        pieces: As for `bootstrap_pieces`.
        columns: M.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws.
        in_memory: As for `bootstrap_pieces`.

    Returns:
        For each resample (B, 2 M), and for the rows as they are (2 M,): the sum of each column's
        defined values, then how many they are.
    """
    drawn = np.zeros((resamples, 2 * columns))
    total = np.zeros(2 * columns)
    sums = _cluster_sums(pieces, columns)
    if in_memory:
        held = np.concatenate([np.empty((0, 2 * columns)), *sums])
        total = held.sum(axis=0)
        few = resamples * len(held) <= _CACHED
        count = resampled_counts if few else resampled_counts.__wrapped__
        counts = count(len(held), resamples, seed)
        for start in range(0, resamples, _BLOCK):
            block = counts[start : start + _BLOCK].astype(np.float64)
            drawn[start : start + _BLOCK] = block @ held
    else:
        random = np.random.default_rng(seed)
        for piece in sums:
            total += piece.sum(axis=0)
            for start in range(0, len(piece), _PIECE):
                part = piece[start : start + _PIECE]
                shape = (resamples, len(part))
                drawn += _POISSON[random.integers(0, 65_536, shape, dtype=np.uint16)] @ part
    return drawn, total


def resampled_rows(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """`resampled_sums` of rows in memory, with exact draws up to 100,000 clusters.

    Args:
        values: (R, M), NaN where undefined.
        clusters: Cluster of each row, (R,), in ascending order; None: each is its own.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws.
    """
    clusters = np.arange(len(values)) if clusters is None else clusters
    few = len(np.unique(clusters)) <= IN_MEMORY
    return resampled_sums(
        [(values, clusters)], values.shape[1], resamples=resamples, seed=seed, in_memory=few
    )


def _cluster_sums(
    pieces: Iterable[tuple[NDArray[np.floating], NDArray[np.int64]]], columns: int
) -> Iterator[NDArray[np.float64]]:
    """Per cluster, the sum of each column's defined values beside their number, (G, 2 M)."""
    carried_id: int | None = None
    carried = np.zeros((1, 2 * columns))
    for values, clusters in pieces:
        if not len(clusters):
            continue
        defined = ~np.isnan(values)
        both = np.concatenate([np.where(defined, values, 0.0), defined], axis=1, dtype=np.float64)
        starts = np.flatnonzero(np.diff(clusters, prepend=clusters[0] - 1))
        sums = np.add.reduceat(both, starts, axis=0)
        if carried_id == clusters[0]:
            sums[0] += carried[0]
        elif carried_id is not None:
            yield carried
        yield sums[:-1]
        carried_id, carried = int(clusters[-1]), sums[-1:]
    if carried_id is not None:
        yield carried


# Quantiles of Poisson(1) at k / 65,536: drawing one is many times faster than NumPy's own.
_FACTORIALS = np.cumprod([1, *range(1, 9)])
_ENDS = np.round(np.cumsum(np.exp(-1.0) / _FACTORIALS) * 65_536)
_POISSON = np.searchsorted(_ENDS, np.arange(65_536), side="right").astype(np.float64)


def divide(top: Floats, bottom: NDArray[Any]) -> Floats:
    """Ratios top / bottom of arrays of one shape, NaN where `bottom` is not above 0."""
    ratios: Floats = np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)
    return ratios


def defined_mean(values: Floats) -> Floats:
    """Mean over the last dimension of the values that are not NaN, NaN where all are."""
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1))


def percentile_interval(
    values: NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Ends of the percentile interval of a statistic's values in B resamples, (B,).

    Resamples where the statistic is NaN are left out; NaN where no other is left.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return (float("nan"), float("nan"))
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return (float(low), float(high))


def resampled_ratios(
    tops: Floats, bottoms: Floats, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Floats, Floats]:
    """Ratios of the sums of some pairs of columns, all on the same resamples of the instances.

    An instance is left out of a pair where either of its two numbers is undefined.

    Args:
        tops: What the numerators sum, (n, M), NaN where undefined.
        bottoms: What the denominators sum, (n, M).
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws, which are those of `attnlight.statistics.seed_bootstrap`.

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
    drawn, total = resampled_rows(pairs, resamples=resamples, seed=seed)
    # Sums of the M numerators, then of the M denominators, then their counts.
    tops, bottoms, _ = np.split(total, [tops.shape[1], pairs.shape[1]])
    drawn_tops, drawn_bottoms, _ = np.split(drawn, [len(tops), pairs.shape[1]], axis=1)
    return divide(tops, bottoms), divide(drawn_tops, drawn_bottoms)
