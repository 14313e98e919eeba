"""Inter-seed agreement of item importance. Arrays are NumPy's, since scores come from records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from attnlight.functional.attribution.leave_one_out import blocks
from attnlight.functional.correlation import rank_agreement
from attnlight.functional.random import permutations
from attnlight.statistics.bootstrap import (
    RESAMPLES,
    MeanInterval,
    defined_mean,
    divide,
    percentile_interval,
    resampled_rows,
)

Scores = Sequence[NDArray[np.floating]]
_ITEMS = 1 << 18  # items correlated at once


def agreement_between(first: Scores, second: Scores) -> dict[str, NDArray[np.float64]]:
    """Agreement of two scorings of the items of n instances, as `functional.rank_agreement`.

    Items that both leave unscored (NaN), as a token whose own deletion leaves no prediction, are
    left out.

    Args:
        first: Scores of each instance's items, one array for each.
        second: Scores of the same items.

    Returns:
        `tau`, `spearman` and `overlap`, each (n,), NaN where undefined.
    """
    found = {name: np.full(len(first), np.nan) for name in ("tau", "spearman", "overlap")}
    for block in _blocks(first):
        rows = [np.array(scores[i], np.float64) for scores in (first, second) for i in block]
        padded = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
        lengths = torch.tensor([len(first[i]) for i in block])
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        one, other = padded.chunk(2)
        mask &= ~(one.isnan() & other.isnan())
        for name, values in rank_agreement(one, other, mask).items():
            found[name][block] = values.numpy()
    return found


def shuffled(scores: Scores, rows: NDArray[np.int64], seed: int = 0) -> list[NDArray[np.floating]]:
    """Each instance's scores in random order, a baseline for agreement by chance.

    Args:
        scores: Scores of each instance's items, one array for each.
        rows: Dataset index and position of each instance, (n, 2); the order depends on these, the
            seed and the number of items.
        seed: Any integer.
    """
    results = list(scores)
    for block in _blocks(scores):
        lengths = torch.tensor([len(scores[i]) for i in block])
        orders = permutations(lengths, torch.from_numpy(rows[block]), draws=1, seed=seed)
        for i, order in zip(block, orders[:, 0].numpy(), strict=True):
            results[i] = scores[i][order[: len(scores[i])]]
    return results


def mean_over_pairs(
    values: NDArray[np.floating],
    seeds: int,
    clusters: NDArray[np.int64],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> MeanInterval:
    """Mean over instances and pairs of seeds, with equal weight for each pair.

    The interval resamples seeds with replacement and, independently, instances. The weight of a
    pair in a resample is the product of its seeds' counts; a seed is not paired with itself. With
    two seeds only the instances vary, and the interval does not generalise to other seeds.

    Args:
        values: Values of the P pairs in the order of `itertools.combinations`, (P, n), NaN where
            undefined.
        seeds: Number of seeds S, with P = S (S - 1) / 2.
        clusters: Cluster of each instance, (n,), in ascending order.
        resamples: Number of bootstrap resamples.
        seed: Seed of the draws.

    Returns:
        The mean with its interval; `defined` counts values, at most P n.
    """
    pairs = np.array(list(combinations(range(seeds), 2)))
    drawn, total = resampled_rows(values.T, clusters, resamples=resamples, seed=seed)
    random = np.random.default_rng([seed, 1])  # independent of the draws of instances
    times = random.multinomial(seeds, np.full(seeds, 1 / seeds), resamples)
    totals, counts = np.split(drawn, 2, axis=-1)
    weights = times[:, pairs].prod(axis=-1) * (counts > 0)
    means = totals / np.maximum(counts, 1)
    low, high = percentile_interval(divide((means * weights).sum(axis=-1), weights.sum(axis=-1)))
    mean = defined_mean(divide(*np.split(total, 2)))
    return MeanInterval(float(mean), low, high, int((~np.isnan(values)).sum()))


def _blocks(scores: Scores) -> Iterator[NDArray[np.intp]]:
    """Indices of instances with items, in blocks of similar length."""
    lengths = np.array([len(values) for values in scores])
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    for block in blocks(lengths[order].tolist(), _ITEMS):
        yield order[block]
