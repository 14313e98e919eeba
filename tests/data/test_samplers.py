import math
from itertools import chain, pairwise

import numpy as np
import pytest

from attnlight.data.samplers import BucketSampler, OnceSampler

Batches = list[list[int]]


def lengths(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 200, n).astype(np.int32)


def trained(sizes: np.ndarray, size: int, world: int = 1, seed: int = 0) -> list[Batches]:
    """Training batches of each rank."""
    return [list(BucketSampler(sizes, size, seed, rank, world)) for rank in range(world)]


def check(ranks: list[Batches], n: int, repeats: int = 0) -> None:
    """Every text once, and repeats of some of them; ranks have as many batches of equal sizes."""
    positions = list(chain(*chain(*ranks)))
    assert sorted(p for p in positions if p >= 0) == list(range(n))
    repeated = [-1 - p for p in positions if p < 0]
    assert len(repeated) == repeats
    assert set(repeated) <= set(positions)
    if repeats or n % len(ranks) == 0:
        assert len({tuple(map(len, batches)) for batches in ranks}) == 1


@pytest.mark.parametrize(
    ("n", "world"), [(1, 1), (32, 1), (500, 1), (64, 2), (101, 2), (101, 3), (7, 4), (4, 4)]
)
def test_training_batches_hold_every_text_once_on_all_ranks_alike(n: int, world: int) -> None:
    ranks = trained(lengths(n), 8, world)
    check(ranks, n, -n % world)
    assert len(ranks[0]) == len(BucketSampler(lengths(n), 8, 0, 0, world))
    assert len(ranks[0]) == math.ceil(n / (8 * world))
    assert sorted(map(len, ranks[0]))[1:] == [8] * (len(ranks[0]) - 1)


def test_training_batches_are_a_function_of_seed_and_epoch() -> None:
    def epoch(seed: int, number: int, before: int = 0) -> Batches:
        sampler = BucketSampler(lengths(300), 16, seed)
        for earlier in range(before):  # an undisturbed run draws these epochs, a resumed one not
            sampler.set_epoch(earlier)
            list(sampler)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(3, 5, before=5) == epoch(3, 5)
    assert epoch(3, 5) != epoch(3, 6)
    assert epoch(3, 5) != epoch(4, 5)


@pytest.mark.parametrize("world", [1, 3])
def test_the_first_epoch_goes_from_short_to_long(world: int) -> None:
    """The batches are those of a shuffled epoch, in the order of their shortest texts."""
    sizes = lengths(301)
    for epoch in (0, 1):
        for rank in range(world):
            shuffled = BucketSampler(sizes, 16, 3, rank, world)
            ascending = BucketSampler(sizes, 16, 3, rank, world, shortest_first=True)
            shuffled.set_epoch(epoch)
            ascending.set_epoch(epoch)
            batches = list(ascending)
            assert sorted(batches) == sorted(shuffled)
            assert (batches != list(shuffled)) == (epoch == 0)
            # Lengths are moved by a tenth, rounded up.
            means = [sizes[[max(p, -1 - p) for p in batch]].mean() for batch in batches]
            rises = [after > before - 1 for before, after in pairwise(means)]
            assert all(rises) == (epoch == 0)


@pytest.mark.parametrize("shorter", range(24, 30))
def test_jitter_follows_the_published_rule(shorter: int) -> None:
    # One batch shows the order itself. Six equally likely lengths from L - 3 to L + 2 overlap with
    # those of 30, from 27 to 32, in all but 30 - L of them.
    n = 30_000
    (order,) = BucketSampler(np.repeat(np.array([shorter, 30], np.int32), n), 2 * n, seed=0)
    longer = np.array(order) >= n
    apart = (30 - shorter) / 6
    assert longer.argmax() / n == pytest.approx(apart, abs=0.01)  # of length 30, the first
    assert (~longer[::-1]).argmax() / n == pytest.approx(apart, abs=0.01)


def test_batches_and_equal_lengths_come_in_random_order() -> None:
    sizes = lengths(3200)
    means = [sizes[batch].mean() for batch in trained(sizes, 32)[0]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.35
    # A corpus sorted by label with texts of one length must not give batches of one label.
    labels = np.repeat([0, 1], 500)
    shares = [labels[batch].mean() for batch in trained(np.full(1000, 4, np.int32), 50)[0]]
    assert 0.2 < min(shares) < max(shares) < 0.8


@pytest.mark.parametrize(("n", "world"), [(64, 2), (101, 2), (101, 4), (33, 16)])
def test_ranks_together_read_the_batches_of_one_device(n: int, world: int) -> None:
    ranks = [BucketSampler(lengths(n), 16 // world, 3, rank, world) for rank in range(world)]
    for epoch in range(3):
        alone = BucketSampler(lengths(n), 16, 3)
        for sampler in (alone, *ranks):
            sampler.set_epoch(epoch)
        together = [chain(*parts) for parts in zip(*ranks, strict=True)]
        steps = [sorted(p for p in step if p >= 0) for step in together]
        assert steps == [sorted(batch) for batch in alone]


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize(("n", "world"), [(10, 1), (9, 2), (10, 3), (1821, 2), (3, 3), (17, 16)])
def test_evaluation_reads_every_text_exactly_once(n: int, world: int, pad: bool) -> None:
    samplers = [OnceSampler(np.arange(n) + 1, 4, rank, world, pad) for rank in range(world)]
    ranks = list(map(list, samplers))
    check(ranks, n, -n % world * pad)
    assert list(map(len, samplers)) == list(map(len, ranks))
    for rank, batches in enumerate(ranks):
        own = sorted(p for p in chain(*batches) if p >= 0)
        assert own == list(range(rank, n, world))
        assert sorted(map(len, batches))[1:] == [4] * (len(batches) - 1)


@pytest.mark.parametrize("world", [1, 2])
def test_sorted_evaluation_pads_little_and_stays_the_same(world: int) -> None:
    sizes = lengths(1001)
    ranks = [list(OnceSampler(sizes, 10, rank, world)) for rank in range(world)]
    padded = sum(len(batch) * sizes[batch].max() for batch in chain(*ranks))
    assert padded < 1.05 * sizes.sum()
    means = [sizes[batch].mean() for batch in ranks[0]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4  # a limited run sees all
    assert ranks[0] == list(OnceSampler(sizes, 10, 0, world))


@pytest.mark.parametrize(("n", "world", "pad"), [(301, 1, False), (301, 2, True), (302, 2, False)])
def test_batches_of_long_texts_are_cut_alike_on_all_ranks(n: int, world: int, pad: bool) -> None:
    sizes = lengths(n)
    samplers = [OnceSampler(sizes, 16, rank, world, pad, 20_000) for rank in range(world)]
    ranks = list(map(list, samplers))
    check(ranks, n, -n % world)
    assert list(map(len, samplers)) == list(map(len, ranks))
    for batch in chain(*ranks):
        longest = int(sizes[[p if p >= 0 else -1 - p for p in batch]].max())
        assert 1 <= len(batch) <= 16
        assert len(batch) == 1 or len(batch) * longest**2 <= 20_000


def shapes(n: int) -> np.ndarray:
    """Sentences, and words of the longest one, of n texts."""
    rng = np.random.default_rng(5)
    return np.stack([rng.integers(1, 12, n), rng.integers(3, 60, n)], axis=1).astype(np.int32)


@pytest.mark.parametrize("world", [1, 2])
def test_training_batches_of_sentences_pad_little(world: int) -> None:
    def cells(ranks: list[Batches]) -> int:
        return sum(len(batch) * int(sizes[batch].max(axis=0).prod()) for batch in chain(*ranks))

    sizes = shapes(2000)
    ranks = trained(sizes, 16, world, 3)
    check(ranks, 2000)
    assert cells(ranks) < 0.8 * cells(trained(sizes.prod(axis=1), 16, world, 3))
    for batch in chain(*ranks):  # 180 texts share a number of sentences: a slice spans one step
        low, high = int(sizes[batch, 0].min()), int(sizes[batch, 0].max())
        assert high - math.ceil(high / 10) <= low + math.ceil(low / 10) + 1


def test_evaluation_sorts_texts_by_sentences_and_then_by_the_longest() -> None:
    sizes = shapes(501)
    expected = sorted(range(501), key=lambda p: (*sizes[p].tolist(), p))
    slices = [expected[start : start + 10] for start in range(0, 501, 10)]
    assert sorted(OnceSampler(sizes, 10)) == sorted(slices)


def test_evaluation_of_chosen_texts_reads_these_once() -> None:
    lengths = np.array([5, 3, 9, 1, 7, 2, 8])
    chosen = np.array([0, 2, 3, 6])
    read = [list(OnceSampler(lengths, 2, rank, 3, True, chosen=chosen)) for rank in range(3)]
    flat = [place for rank in read for batch in rank for place in batch]
    assert sorted(place for place in flat if place >= 0) == chosen.tolist()
    assert [place for place in flat if place < 0] == [-1 - 2] * 2  # the longest fills up
    assert list(OnceSampler(lengths, 4, chosen=chosen)) == [[3, 0, 6, 2]]
