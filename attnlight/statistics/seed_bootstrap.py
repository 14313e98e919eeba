"""Means over several seeds, whose intervals claim something of an architecture, not of one run.

The runs of a group are tested on the same instances, so a value has a seed and an instance, and
both vary: each resample draws seeds with replacement and, apart from that, instances, the same for
every seed (the pigeonhole bootstrap of Owen 2007, which errs towards wide intervals). Each seed
weighs alike, however many of its values are defined.
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

    With one seed only the instances vary, and the interval says nothing of other seeds.

    Args:
        values: Value of each of S seeds on each instance, (S, n), NaN where undefined.
        clusters: Cluster of each instance, (n,), in ascending order; None: each is its own.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Returns:
        The mean with its interval; `defined` counts values, at most S n.
    """
    resampled = resampled_means(values, clusters, resamples=resamples, seed=seed)
    ((mean, drawn),) = resample_seeds([resampled], seed=seed)
    low, high = percentile_interval(drawn, confidence)
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
    """Mean of group a less that of group b, with an interval over seeds and shared instances.

    Both groups are read on the same instances in each resample; their seeds are drawn apart, for
    seed 1 of one architecture has nothing to do with seed 1 of another.

    Args:
        a: Values of S1 seeds, (S1, n), NaN where undefined.
        b: Values of S2 seeds on the same instances, (S2, n).
        clusters: Cluster of each instance, (n,), in ascending order; None: each is its own.
        resamples: Number of bootstrap resamples.
        confidence: Coverage of the interval.
        seed: Seed of the draws.

    Returns:
        The difference with its interval; `defined` counts the values of both groups.
    """
    groups = [resampled_means(x, clusters, resamples=resamples, seed=seed) for x in (a, b)]
    (first, drawn_first), (second, drawn_second) = resample_seeds(groups, seed=seed)
    low, high = percentile_interval(drawn_first - drawn_second, confidence)
    defined = sum(int((~np.isnan(values)).sum()) for values in (a, b))
    return MeanInterval(first - second, low, high, defined)


def resampled_means(
    values: NDArray[np.floating],
    clusters: NDArray[np.int64] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each seed's values as it is, (S,), and in each resample of the instances, (B, S).

    Groups that are resampled with one seed see the same instances in each resample.

    Args:
        values: Value of each of S seeds on each instance, (S, n), NaN where undefined.
        clusters: Cluster of each instance, (n,), in ascending order; None: each is its own.
        resamples: Number of bootstrap resamples B.
        seed: Seed of the draws.
    """
    drawn, total = resampled_rows(values.T, clusters, resamples=resamples, seed=seed)
    held, resampled = (divide(*np.split(sums, 2, axis=-1)) for sums in (total, drawn))
    return held, resampled


def mean_of_models(values: NDArray[np.float64], models: Sequence[str]) -> NDArray[np.float64]:
    """Mean of the runs that share a trained model, so that the model is the unit of a resample.

    Five perceptrons that one adversary guides are one case of an adversary, not five.

    Args:
        values: A statistic of each run, (..., S), NaN where undefined.
        models: The trained model that each run stands for, (S,).

    Returns:
        (..., U), one value for each of U models in order of appearance, NaN where none is defined.

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
    """Mean over the seeds of each group, as they are and drawn anew in each resample.

    Args:
        groups: A statistic of each of S seeds, (S,), and the same in each of B resamples of the
            instances, (B, S); NaN where it is undefined.
        seed: Seed of the draws, the seeds of one group after those of another.

    Returns:
        For each group the mean of what is defined and those of the resamples, (B,).
    """
    random = np.random.default_rng([seed, 1])  # apart from the draws of instances
    found = []
    for held, resampled in groups:
        chosen = random.integers(0, len(held), resampled.shape)
        means = defined_mean(np.take_along_axis(resampled, chosen, axis=1))
        found.append((float(defined_mean(held)), means))
    return found
