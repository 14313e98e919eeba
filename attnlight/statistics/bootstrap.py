"""Cluster bootstrap of means. Arrays are NumPy's, as read from records."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1_000
CONFIDENCE = 0.95
MAX_EXACT_CLUSTERS = 100_000  # with more clusters, Poisson weights replace exact draws
_POISSON_BLOCK = 2_048  # clusters weighted at once
Floats = NDArray[np.float64]


class MeanInterval(NamedTuple):
    """A mean with its percentile interval."""

    mean: float  # mean of the defined values; NaN if there is none
    low: float  # lower end of the interval
    high: float  # upper end of the interval
    defined: int  # number of defined values


_BLOCK = 16  # resamples per matrix product, few enough for the cache
_MAX_CACHED = 2**25  # bytes; larger counts are not cached


@functools.lru_cache(maxsize=8)
def resampled_counts(clusters: int, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.uint8]:
    """Number of times each bootstrap resample draws each of n clusters, (B, n).

    Means, ratios and quantiles follow from these counts, so that all statistics of one set of
    clusters share their draws. Counts are 8-bit, as one above 255 is practically impossible.
    """
    random = np.random.default_rng(seed)
    counts = np.empty((resamples, clusters), dtype=np.uint8)
    for row in counts:
        row[:] = np.bincount(random.integers(0, clusters, size=clusters), minlength=clusters)
    counts.flags.writeable = False
    return counts


def bootstrap_means(
    values: NDArray[np.floating], clusters: NDArray[np.int64], *, seed: int = 0
) -> list[MeanInterval]:
    """Mean of each column with a 95 % percentile interval that resamples whole clusters.

    Rows of one cluster (the tokens of a sentence) are not independent, so clusters are drawn with
    replacement, each with all its rows. NaN is excluded from the mean. Above 100,000 clusters,
    counts of draws are replaced by independent Poisson(1) weights. Values (R, M) are NaN where
    undefined; the cluster of each row, (R,), ascends.
    """
    return mean_intervals(*resampled_rows(values, clusters, seed=seed))


def mean_intervals(replicates: Floats, observed: Floats) -> list[MeanInterval]:
    """The mean of each column with its interval, from what `resampled_sums` returns."""
    mean_replicates, means = (
        divide(*np.split(sums, 2, axis=-1)) for sums in (replicates, observed)
    )
    ends, counts = map(percentile_interval, mean_replicates.T), observed[len(means) :]
    statistics = zip(means.tolist(), ends, counts.tolist(), strict=True)
    return [MeanInterval(mean, *interval, int(count)) for mean, interval, count in statistics]


def resampled_sums(
    pieces: Iterable[tuple[NDArray[np.floating], NDArray[np.int64]]],
    columns: int,
    *,
    seed: int = 0,
    in_memory: bool,
) -> tuple[Floats, Floats]:
    """Sums of the defined values in each bootstrap resample, from which ratios of means follow.

    All columns share the draws of a resample, so that differences and ratios of columns are paired.
    Each piece has values (r, M) and clusters (r,); a cluster may span two pieces. `in_memory` draws
    clusters exactly, with all cluster sums in memory; else each cluster is weighted by Poisson(1),
    in constant memory.

    Returns:
        For each resample, (B, 2 M), and for the observed rows, (2 M,): the sum of each column's
        defined values, followed by their numbers.
    """
    replicates, observed = np.zeros((RESAMPLES, 2 * columns)), np.zeros(2 * columns)
    sums = _cluster_sums(pieces, columns)
    if in_memory:
        by_cluster = np.concatenate([np.empty((0, 2 * columns)), *sums])
        observed = by_cluster.sum(axis=0)
        cacheable = RESAMPLES * len(by_cluster) <= _MAX_CACHED
        draw = resampled_counts if cacheable else resampled_counts.__wrapped__
        counts = draw(len(by_cluster), RESAMPLES, seed)
        for start in range(0, RESAMPLES, _BLOCK):
            block = counts[start : start + _BLOCK].astype(np.float64)
            replicates[start : start + _BLOCK] = block @ by_cluster
    else:
        random = np.random.default_rng(seed)
        for piece in sums:
            observed += piece.sum(axis=0)
            for start in range(0, len(piece), _POISSON_BLOCK):
                part = piece[start : start + _POISSON_BLOCK]
                shape = (RESAMPLES, len(part))
                replicates += _POISSON[random.integers(0, 65_536, shape, dtype=np.uint16)] @ part
    return replicates, observed


def resampled_rows(
    values: NDArray[np.floating], clusters: NDArray[np.int64] | None = None, *, seed: int = 0
) -> tuple[Floats, Floats]:
    """`resampled_sums` of rows in memory, with exact draws up to 100,000 clusters.

    `values` (R, M) are NaN where undefined; `clusters` (R,) ascend, None: one per row.
    """
    clusters = np.arange(len(values)) if clusters is None else clusters
    in_memory = len(np.unique(clusters)) <= MAX_EXACT_CLUSTERS
    return resampled_sums([(values, clusters)], values.shape[1], seed=seed, in_memory=in_memory)


def _cluster_sums(
    pieces: Iterable[tuple[NDArray[np.floating], NDArray[np.int64]]], columns: int
) -> Iterator[NDArray[np.float64]]:
    """Sums of each column's defined values, followed by their numbers, by cluster, (G, 2 M)."""
    carried_id: int | None = None
    carried = np.zeros((1, 2 * columns))
    for values, clusters in pieces:
        if not len(clusters):
            continue
        defined = ~np.isnan(values)
        values_and_counts = np.concatenate(
            [np.where(defined, values, 0.0), defined], axis=1, dtype=np.float64
        )
        starts = np.flatnonzero(np.diff(clusters, prepend=clusters[0] - 1))
        sums = np.add.reduceat(values_and_counts, starts, axis=0)
        if carried_id == clusters[0]:
            sums[0] += carried[0]
        elif carried_id is not None:
            yield carried
        yield sums[:-1]
        carried_id, carried = int(clusters[-1]), sums[-1:]
    if carried_id is not None:
        yield carried


# Quantiles of Poisson(1) at k / 65,536: a lookup is many times faster than NumPy's generator.
_FACTORIALS = np.cumprod([1, *range(1, 9)])
_CUMULATIVE = np.round(np.cumsum(np.exp(-1.0) / _FACTORIALS) * 65_536)
_POISSON = np.searchsorted(_CUMULATIVE, np.arange(65_536), side="right").astype(np.float64)


def divide(numerator: Floats, denominator: NDArray[Any]) -> Floats:
    """Ratios of arrays of one shape, NaN where the denominator is not above 0."""
    ratios: Floats = np.divide(
        numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator > 0
    )
    return ratios


def defined_mean(values: Floats) -> Floats:
    """Mean over the last dimension of the values that are not NaN, NaN where all are."""
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1))


def percentile_interval(
    values: NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Ends of the percentile interval from a statistic's bootstrap replicates, (B,).

    NaN replicates are excluded; both ends are NaN if no other remains.
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return (float("nan"), float("nan"))
    tail = (1 - confidence) / 2
    return tuple(np.quantile(defined, [tail, 1 - tail]).tolist())


def resampled_ratios(numerators: Floats, denominators: Floats) -> tuple[Floats, Floats]:
    """Ratios of the sums of pairs of columns (n, M), all on the same resamples of the instances.

    An instance is excluded from a pair if either of its two values is undefined. The resamples are
    those of `seed_bootstrap`. Returned are the observed ratios, (M,), and their bootstrap
    replicates, (B, M); NaN where a denominator is not above 0.

    Example:
        >>> numerators, denominators = np.array([[2.0], [1.0]]), np.array([[2.0], [4.0]])
        >>> observed, replicates = resampled_ratios(numerators, denominators)
        >>> observed, sorted(set(replicates[:, 0].round(2).tolist()))
        (array([0.5]), [0.25, 0.5, 1.0])
    """
    undefined = np.isnan(numerators) | np.isnan(denominators)
    pairs = np.where(
        np.tile(undefined, 2), np.nan, np.concatenate([numerators, denominators], axis=1)
    )
    replicates, observed = resampled_rows(pairs)
    # Sums of the M numerators, then of the M denominators, then their counts.
    ends = [numerators.shape[1], pairs.shape[1]]
    held, drawn = (divide(*np.split(x, ends, axis=-1)[:2]) for x in (observed, replicates))
    return held, drawn
