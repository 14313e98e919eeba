import itertools
import math

import numpy as np
import pytest

from attnlight.data.samplers import BucketSampler, OnceSampler


def lengths(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 200, n).astype(np.int32)


def dealt(n: int, world: int, pad: bool, size: int = 4) -> list[list[list[int]]]:
    return [list(OnceSampler(np.arange(n) + 1, size, rank, world, pad)) for rank in range(world)]


@pytest.mark.parametrize("n", [1, 31, 32, 33, 500])
def test_training_batches_hold_every_text_once(n: int) -> None:
    sampler = BucketSampler(lengths(n), 32, seed=0)
    batches = list(sampler)
    assert sorted(itertools.chain(*batches)) == list(range(n))
    assert len(batches) == len(sampler) == math.ceil(n / 32)
    assert sorted(map(len, batches))[1:] == [32] * (len(batches) - 1)


def test_training_batches_are_a_function_of_seed_and_epoch() -> None:
    def epoch(seed: int, number: int, before: int = 0) -> list[list[int]]:
        sampler = BucketSampler(lengths(300), 16, seed)
        for earlier in range(before):  # an undisturbed run draws these epochs, a resumed one not
            sampler.set_epoch(earlier)
            list(sampler)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(3, 5, before=5) == epoch(3, 5)
    assert epoch(3, 5) != epoch(3, 6)
    assert epoch(3, 5) != epoch(4, 5)


def test_lengths_within_a_batch_differ_by_the_jitter_only() -> None:
    # Twenty texts share each length, so a slice of 8 spans at most one step of jittered length,
    # and jitter moves a length L by at most ceil(0.1 L).
    sizes = lengths(4000)
    for batch in BucketSampler(sizes, 8, seed=1):
        low, high = int(sizes[batch].min()), int(sizes[batch].max())
        assert high - math.ceil(high / 10) <= low + math.ceil(low / 10) + 1


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


def test_batches_come_in_random_order_of_length() -> None:
    sizes = lengths(3200)
    means = [sizes[batch].mean() for batch in BucketSampler(sizes, 32, seed=0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.35


def test_equal_lengths_are_mixed() -> None:
    # A corpus sorted by label with texts of one length must not give batches of one label.
    labels = np.repeat([0, 1], 500)
    shares = [labels[batch].mean() for batch in BucketSampler(np.full(1000, 4, np.int32), 50, 0)]
    assert min(shares) > 0.2
    assert max(shares) < 0.8


@pytest.mark.parametrize(("n", "world"), [(64, 2), (101, 2), (101, 3), (7, 4), (4, 4)])
def test_ranks_train_on_as_many_batches_of_equal_sizes(n: int, world: int) -> None:
    ranks = [list(BucketSampler(lengths(n), 8, 0, rank, world)) for rank in range(world)]
    assert len({tuple(map(len, batches)) for batches in ranks}) == 1
    everything = list(itertools.chain(*itertools.chain(*ranks)))
    assert sorted(p for p in everything if p >= 0) == list(range(n))
    repeats = [p for p in everything if p < 0]
    assert len(repeats) == -n % world
    assert all(-1 - p in everything for p in repeats)
    assert (
        len(ranks[0])
        == len(BucketSampler(lengths(n), 8, 0, 0, world))
        == math.ceil(n / (8 * world))
    )


@pytest.mark.parametrize(("n", "world"), [(64, 2), (101, 2), (101, 4), (33, 16)])
def test_ranks_together_read_the_batches_of_one_device(n: int, world: int) -> None:
    ranks = [BucketSampler(lengths(n), 16 // world, 3, rank, world) for rank in range(world)]
    for epoch in range(3):
        alone = BucketSampler(lengths(n), 16, 3)
        for sampler in (alone, *ranks):
            sampler.set_epoch(epoch)
        together = [itertools.chain(*parts) for parts in zip(*ranks, strict=True)]
        steps = [sorted(p for p in step if p >= 0) for step in together]
        assert steps == [sorted(batch) for batch in alone]


def test_ranks_train_on_similar_lengths_at_each_step() -> None:
    sizes = lengths(2000)
    ranks = [list(BucketSampler(sizes, 8, 0, rank, 2)) for rank in range(2)]
    for first, second in zip(*ranks, strict=True):
        assert abs(sizes[first].mean() - sizes[second].mean()) < 0.1 * sizes[first].mean() + 2


@pytest.mark.parametrize(("n", "world"), [(10, 1), (9, 2), (10, 3), (1821, 2), (3, 3)])
def test_evaluation_reads_every_text_exactly_once(n: int, world: int) -> None:
    ranks = dealt(n, world, pad=False)
    for rank, batches in enumerate(ranks):
        assert sorted(itertools.chain(*batches)) == list(range(rank, n, world))
        assert len(batches) == len(OnceSampler(lengths(n), 4, rank, world))
        assert sorted(map(len, batches))[1:] == [4] * (len(batches) - 1)


@pytest.mark.parametrize(("n", "world"), [(10, 1), (9, 2), (10, 3), (1821, 2), (17, 16)])
def test_padded_evaluation_gives_all_ranks_as_much_and_marks_repeats(n: int, world: int) -> None:
    ranks = dealt(n, world, pad=True)
    assert len({tuple(map(len, batches)) for batches in ranks}) == 1
    positions = list(itertools.chain(*itertools.chain(*ranks)))
    assert sorted(p for p in positions if p >= 0) == list(range(n))
    repeats = [p for p in positions if p < 0]
    assert len(repeats) == -n % world
    assert all(0 <= -1 - p < n for p in repeats)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("pad", [False, True])
def test_sorted_evaluation_pads_little_and_reads_every_text_once(world: int, pad: bool) -> None:
    sizes = lengths(1001)
    ranks = [list(OnceSampler(sizes, 10, rank, world, pad)) for rank in range(world)]
    positions = list(itertools.chain(*itertools.chain(*ranks)))
    assert sorted(p for p in positions if p >= 0) == list(range(1001))
    padded = sum(len(b) * sizes[b].max() for b in itertools.chain(*ranks) if min(b) >= 0)
    assert padded < 1.05 * sizes.sum()
    means = [sizes[[p for p in batch if p >= 0]].mean() for batch in ranks[0] if max(batch) >= 0]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4  # a limited run sees all
    assert ranks[0] == list(OnceSampler(sizes, 10, 0, world, pad))


@pytest.mark.parametrize(("n", "world", "pad"), [(301, 1, False), (301, 2, True), (302, 2, False)])
def test_batches_of_long_texts_are_cut_alike_on_all_ranks(n: int, world: int, pad: bool) -> None:
    sizes = lengths(n)
    samplers = [OnceSampler(sizes, 16, rank, world, pad, 20_000) for rank in range(world)]
    ranks = [list(sampler) for sampler in samplers]
    assert len({len(batches) for batches in ranks}) == 1
    assert [len(sampler) for sampler in samplers] == list(map(len, ranks))
    everything = list(itertools.chain(*itertools.chain(*ranks)))
    assert sorted(p for p in everything if p >= 0) == list(range(n))
    for batch in itertools.chain(*ranks):
        longest = int(sizes[[p if p >= 0 else -1 - p for p in batch]].max())
        assert 1 <= len(batch) <= 16
        assert len(batch) == 1 or len(batch) * longest**2 <= 20_000


def test_uncut_batches_are_those_of_every_text_once() -> None:
    sizes = lengths(101)
    uncut = OnceSampler(sizes, 8)
    assert list(OnceSampler(sizes, 8, pairs=10**9)) == list(uncut)


def shapes(n: int) -> np.ndarray:
    """Sentences, and words of the longest one, of n texts."""
    rng = np.random.default_rng(5)
    return np.stack([rng.integers(1, 12, n), rng.integers(3, 60, n)], axis=1).astype(np.int32)


def cells(batches: list[list[int]], sizes: np.ndarray) -> int:
    """What padded batches of sentences hold."""
    return sum(len(batch) * int(sizes[batch].max(axis=0).prod()) for batch in batches)


@pytest.mark.parametrize("world", [1, 2])
def test_training_batches_of_sentences_hold_every_text_once_and_pad_little(world: int) -> None:
    sizes = shapes(2000)
    ranks = [list(BucketSampler(sizes, 16, 3, rank, world)) for rank in range(world)]
    assert sorted(itertools.chain(*itertools.chain(*ranks))) == list(range(2000))
    assert len({tuple(map(len, batches)) for batches in ranks}) == 1
    batches = list(itertools.chain(*ranks))
    by_area = [list(BucketSampler(sizes.prod(axis=1), 16, 3, r, world)) for r in range(world)]
    assert cells(batches, sizes) < 0.8 * cells(list(itertools.chain(*by_area)), sizes)
    for batch in batches:  # 180 texts share a number of sentences: a slice spans one step of it
        low, high = int(sizes[batch, 0].min()), int(sizes[batch, 0].max())
        assert high - math.ceil(high / 10) <= low + math.ceil(low / 10) + 1


def test_evaluation_sorts_texts_by_sentences_and_then_by_the_longest() -> None:
    sizes = shapes(501)
    sampler = OnceSampler(sizes, 10)
    batches = list(sampler)
    assert sorted(itertools.chain(*batches)) == list(range(501))
    expected = sorted(range(501), key=lambda p: (*sizes[p].tolist(), p))
    slices = [expected[start : start + 10] for start in range(0, 501, 10)]
    assert sorted(batches) == sorted(slices)
    assert batches == list(sampler)


def test_one_length_of_each_text_may_stand_in_a_column() -> None:
    sizes = lengths(300)
    column = sizes[:, None]
    assert list(BucketSampler(column, 16, 0)) == list(BucketSampler(sizes, 16, 0))
    assert list(OnceSampler(column, 9)) == list(OnceSampler(sizes, 9))


def test_the_batches_of_flat_texts_are_those_of_earlier_runs() -> None:
    """A resumed run must meet them again."""
    sizes = lengths(200)
    sampler = BucketSampler(sizes, 64, seed=2)
    rng = np.random.default_rng((2, 0))
    order = np.concatenate([rng.permutation(200), rng.integers(200, size=0)])
    reach = -(-sizes[order] // 10)
    moved = sizes[order] + rng.integers(-reach, reach, dtype=np.int32)
    order = order[np.argsort(moved, kind="stable")]
    expected = [order[number * 64 : number * 64 + 64].tolist() for number in rng.permutation(4)]
    assert list(sampler) == expected
