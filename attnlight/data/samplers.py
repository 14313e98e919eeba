"""Samplers that decide the texts of each batch, its device and the order of batches.

All samplers yield complete batches as lists of positions, for `DataLoader(sampler=...,
batch_size=None)`. They subclass `DistributedSampler` so that Lightning does not replace them and
calls `set_epoch`; that class needs nothing of the dataset but its length.
"""

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, DistributedSampler


class BucketSampler(DistributedSampler[list[int]]):
    """Training batches of similar lengths in random order, determined by seed and epoch.

    Jain & Wallace's rule: each length L is moved by an integer drawn uniformly from
    [floor(-0.1 L), ceil(0.1 L)), texts are sorted by the result, contiguous slices are batches, and
    their order is shuffled. Ties are ordered at random, since corpora are often sorted by label.
    With several devices a slice has `batch_size` texts for each, assigned in turn; the last text is
    repeated up to world - 1 times, and a repeat of position p is yielded as -1 - p (`TokenDataset`).

    Texts with several lengths (sentences, and ids of the longest one) are sorted by the first, ties
    by the next, each length moved by an independent draw.

    Args:
        lengths: Number of ids of each text, (n,), or several lengths of each, (n, K).
        batch_size: Texts per batch on each device.
        seed: Seed of the order, at least 0.
        rank: This device.
        world: Number of devices.
        shortest_first: Whether the batches of the first epoch are not shuffled: short texts come first.
    """

    def __init__(
        self,
        lengths: NDArray[np.integer],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        shortest_first: bool = False,
    ) -> None:
        super().__init__(cast("Dataset[Any]", lengths), num_replicas=world, rank=rank, seed=seed)
        self.lengths = lengths
        self.batch_size = batch_size
        self.shortest_first = shortest_first

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / (self.batch_size * self.num_replicas))

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        n, stride = len(self.lengths), self.batch_size * self.num_replicas
        order = rng.permutation(n)
        lengths = np.atleast_2d(self.lengths[order].T)
        reach = (lengths + 9) // 10  # 0.1 L rounded up in integers, as 0.1 * 30 > 3
        jitter = rng.integers(-reach, reach, dtype=lengths.dtype)
        order = order[np.lexsort((lengths + jitter)[::-1])]
        order = np.concatenate([order, np.repeat(-1 - order[-1:], -n % self.num_replicas)])
        ascending = self.shortest_first and self.epoch == 0
        for number in np.arange(len(self)) if ascending else rng.permutation(len(self)):
            start = number * stride
            yield order[start : start + stride][self.rank :: self.num_replicas].tolist()


class OnceSampler(DistributedSampler[list[int]]):
    """Each text exactly once over all devices, for evaluation; the batches never change.

    Rank r gets texts r, r + world, ... of the order, divided into batches. Texts are ordered by
    length, so that batches need little padding, and batches are shuffled with a fixed seed, so that
    a run limited to some batches covers all lengths.

    With `pairs`, batches with too many pairs of tokens are divided further, on all ranks alike:
    tests of a tagger need memory for each pair of a token and an item.

    Args:
        lengths, batch_size, rank, world: As of `BucketSampler`.
        pad: Give all ranks the same number of texts by repeating the last one; a repeat of
            position p is yielded as -1 - p, which `TokenDataset` marks by index -1.
        pairs: Maximum number of pairs of a batch, its texts times the square of the longest of
            `lengths`, (n,); texts are never divided.
        chosen: Positions of the texts that are read, ascending; None: all.
    """

    def __init__(
        self,
        lengths: NDArray[np.integer],
        batch_size: int,
        rank: int = 0,
        world: int = 1,
        pad: bool = False,
        pairs: int | None = None,
        chosen: NDArray[np.intp] | None = None,
    ) -> None:
        lengths = lengths if chosen is None else lengths[chosen]
        super().__init__(
            cast("Dataset[Any]", lengths), num_replicas=world, rank=rank, shuffle=False
        )
        self.lengths, self.chosen = lengths, chosen
        self.batch_size = batch_size
        self.pairs = pairs
        self._repeats = -len(lengths) % world if pad else 0
        self._count = math.ceil(len(range(rank, len(lengths) + self._repeats, world)) / batch_size)

    def __len__(self) -> int:
        return self._count if self.pairs is None else sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.lexsort(np.atleast_2d(self.lengths.T)[::-1])
        places = order if self.chosen is None else self.chosen[order]
        padded = np.concatenate([places, np.repeat(-1 - places[-1:], self._repeats)])
        share = padded[self.rank :: self.num_replicas]
        for number in np.random.default_rng(0).permutation(self._count):
            batch = share[number * self.batch_size : (number + 1) * self.batch_size].tolist()
            size = self.batch_size
            if self.pairs is not None:
                # The longest of all ranks' batches, so that all ranks run as many batches.
                stop = (number + 1) * self.batch_size * self.num_replicas
                last = order[min(stop, len(order)) - 1]
                size = max(1, self.pairs // int(self.lengths[last]) ** 2)
            for start in range(0, len(batch), size):
                yield batch[start : start + size]
