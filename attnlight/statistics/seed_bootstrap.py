"""Means over several seeds, with intervals that generalise to an architecture, not just one run.

The runs of a group are tested on the same instances, so seeds and instances are crossed: each
resample draws seeds with replacement and, independently, instances, the same for every seed (the
pigeonhole bootstrap of Owen 2007, which is conservative). All seeds have equal weight, however many
of their values are defined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics.bootstrap import (
    CONFIDENCE,
    RESAMPLES,
    MeanInterval,
    defined_mean,
    divide,
    percentile_interval,
    resampled_rows,
)


def seeds_then_instances(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> MeanInterval:
    """Mean over seeds of each seed's mean, with an interval that resamples seeds and instances.

    With one seed only the instances vary, and the interval does not generalise to other seeds.

    Args:
        values: Value of each of S seeds on each instance, (S, n), NaN where undefined.
        clusters: Cluster of each instance, (n,), in ascending order; None: one per instance.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Returns:
        The mean with its interval; `defined` counts values, at most S n.
    """
    by_seed = resampled_means(values, clusters, resamples=resamples, seed=seed)
    ((mean, replicates),) = resample_seeds([by_seed], seed=seed)
    low, high = percentile_interval(replicates, confidence)
    return MeanInterval(mean, low, high, int((~np.isnan(values)).sum()))


def difference_of_groups(
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> MeanInterval:
    """Mean of group a minus that of group b, with an interval over seeds and shared instances.

    Each resample uses the same instances for both groups; their seeds are drawn independently,
    since equal seeds of different architectures are unrelated.

    Args:
        a: Values of S1 seeds, (S1, n), NaN where undefined.
        b: Values of S2 seeds on the same instances, (S2, n).
        clusters: Cluster of each instance, (n,), in ascending order; None: one per instance.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Returns:
        The difference with its interval; `defined` counts the values of both groups.
    """
    groups = [resampled_means(x, clusters, resamples=resamples, seed=seed) for x in (a, b)]
    (mean_a, replicates_a), (mean_b, replicates_b) = resample_seeds(groups, seed=seed)
    low, high = percentile_interval(replicates_a - replicates_b, confidence)
    defined = sum(int((~np.isnan(values)).sum()) for values in (a, b))
    return MeanInterval(mean_a - mean_b, low, high, defined)


def resampled_means(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each seed's values, (S,), and its bootstrap replicates over instances, (B, S).

    Groups resampled with the same `seed` share the instances of each resample.

    Args:
        values: Value of each of S seeds on each instance, (S, n), NaN where undefined.
        clusters: Cluster of each instance, (n,), in ascending order; None: one per instance.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws.
    """
    resampled_totals, totals = resampled_rows(values.T, clusters, resamples=resamples, seed=seed)
    observed, replicates = (
        divide(*np.split(sums, 2, axis=-1)) for sums in (totals, resampled_totals)
    )
    return observed, replicates


def mean_of_models(values: NDArray[np.float64], models: Sequence[str]) -> NDArray[np.float64]:
    """Mean over the runs that share a trained model, so that models are the units of resampling.

    Five perceptrons guided by one adversary are one sample of an adversary, not five.

    Args:
        values: A statistic of each run, (..., S), NaN where undefined.
        models: Trained model of each run, (S,).

    Returns:
        (..., U), one value per model in order of first occurrence, NaN where none is defined.

    Example:
        >>> mean_of_models(np.array([1.0, 3.0, 8.0]), ["a", "a", "b"])
        array([2., 8.])
    """
    if len(set(models)) == len(models):
        return values
    names = np.array(models)
    parts = [values[..., names == name] for name in dict.fromkeys(models)]
    return np.stack([defined_mean(part) for part in parts], axis=-1)


def resample_seeds(
    groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], *, seed: int = 0
) -> list[tuple[float, NDArray[np.float64]]]:
    """Mean over the seeds of each group, and its bootstrap replicates over seeds.

    Args:
        groups: A statistic of each of S seeds, (S,), and its B replicates over instances, (B, S);
            NaN where undefined.
        seed: Seed of the draws, which are made group by group.

    Returns:
        For each group the mean of the defined values and its replicates, (B,).
    """
    random = np.random.default_rng([seed, 1])  # independent of the draws of instances
    results = []
    for observed, replicates in groups:
        drawn_seeds = random.integers(0, len(observed), replicates.shape)
        means = defined_mean(np.take_along_axis(replicates, drawn_seeds, axis=1))
        results.append((float(defined_mean(observed)), means))
    return results
