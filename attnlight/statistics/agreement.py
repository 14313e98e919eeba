"""Inter-seed agreement of item importance. Arrays are NumPy's, since scores come from records."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from attnlight.functional._cpu import blocks
from attnlight.functional.correlation import rank_agreement
from attnlight.functional.random import permutations
from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import (
    UNBOUNDED,
    SeedInterval,
    resampled_means,
    seed_interval,
)

Scores = Sequence[NDArray[np.floating]]
_ITEMS = 1 << 18  # items correlated at once


def agreement_between(first: Scores, second: Scores) -> dict[str, NDArray[np.float64]]:
    """Agreement of two scorings of the items of n instances, as `functional.rank_agreement`.

    Items that both leave unscored (NaN), as a token whose own deletion leaves no prediction, are
    left out. Scores are one array for each instance. Returned are `tau`, `spearman` and
    `overlap`, each (n,), NaN where undefined.
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

    The order depends on dataset index and position, `rows` (n, 2), the seed and the number of items.
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
    bounds: tuple[float, float] = UNBOUNDED,
    seed: int = 0,
) -> SeedInterval:
    """Mean over instances and pairs of seeds, with equal weight for each pair.

    Pairs that share a seed are not independent, so the interval is that of `seed_interval` for the
    jackknife's pseudo-values of the seeds (Arvesen 1969). With two seeds only the instances vary,
    and the interval does not generalise to other seeds. Values (P, n) are those of the P = S (S -
    1) / 2 pairs of `seeds` in the order of `itertools.combinations`, NaN where undefined; clusters
    (n,) of the instances ascend. The interval is clipped to `bounds`. The result has no values of
    the seeds.
    """
    by_pair, replicates = resampled_means(values, clusters, seed=seed)
    parts = [by_pair, replicates]
    if seeds > 2:
        pairs = np.array(list(combinations(range(seeds), 2)))
        others = [(pairs != s).all(axis=1) for s in range(seeds)]
        for place, each in enumerate(parts):
            # S times the mean over pairs, less S - 1 times that without each seed: (..., S).
            without = np.stack([defined_mean(each[..., kept]) for kept in others], axis=-1)
            parts[place] = seeds * defined_mean(each)[..., None] - (seeds - 1) * without
    found = seed_interval((parts[0], parts[1]), bounds=bounds)
    return found._replace(mean=float(defined_mean(by_pair)), values=())


def _blocks(scores: Scores) -> Iterator[NDArray[np.intp]]:
    """Indices of instances with items, in blocks of similar length."""
    lengths = np.array([len(values) for values in scores])
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    for block in blocks(lengths[order].tolist(), _ITEMS):
        yield order[block]
