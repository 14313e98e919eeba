import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scipy.stats import chisquare, kstest
from torch import Tensor

from attnlight.functional import draw_keys, permutations
from attnlight.functional._cpu import Scratch
from attnlight.functional.random import sorted_by_keys

WORD = 2**64


def splitmix64(state: int) -> int:
    """The first output of Vigna's public-domain splitmix64.c at this state."""
    bits = (state + 0x9E3779B97F4A7C15) % WORD
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) % WORD
    return bits ^ (bits >> 31)


def output(state: int, number: int) -> int:
    return splitmix64((state + number * 0x9E3779B97F4A7C15) % WORD)


def rows(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs)


def test_the_oracle_is_splitmix64() -> None:
    # The published first outputs for seed 1234567.
    assert [output(1234567, n) for n in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize("seed", [0, 42, -7, 2**63, 2**64 - 1, 2**70 + 3])
def test_keys_are_nodes_of_a_tree_of_generators(seed: int) -> None:
    index, position = torch.tensor([0, 5, -1, 2**40]), torch.tensor([0, 3, 0, 9])
    keys = draw_keys(seed, index, position, draws=3, length=4)
    assert keys.dtype == torch.int64
    for row, draw, item in itertools.product(range(4), range(3), range(4)):
        state = output(seed % WORD, int(index[row]))
        state = output(output(state, int(position[row])), draw)
        assert int(keys[row, draw, item]) % WORD == output(state, item)


def test_keys_are_uniform() -> None:
    keys = draw_keys(3, torch.arange(40), torch.zeros(40, dtype=torch.long), 10, 50)
    assert kstest(keys.double().flatten().numpy() / WORD + 0.5, "uniform").pvalue > 1e-3
    ones = torch.stack([(keys >> bit) & 1 for bit in range(64)]).double().mean((1, 2, 3))
    assert (ones - 0.5).abs().max() < 5 * 0.5 / keys.numel() ** 0.5


def test_permutations_are_sorted_keys() -> None:
    (drawn,) = permutations(torch.tensor([5]), rows((9, 2)), draws=4, seed=11)
    numbers = draw_keys(11, torch.tensor([9]), torch.tensor([2]), 4, 3)[0]
    for draw in range(4):
        halves = [half for n in numbers[draw].tolist() for half in (n % 2**31, (n >> 32) % 2**31)]
        assert drawn[draw].tolist() == sorted(range(5), key=halves.__getitem__)


def test_permutations_do_not_depend_on_the_batch() -> None:
    lengths, pairs = torch.tensor([4, 300, 17]), rows((3, 0), (8, 1), (8, 2))
    together = permutations(lengths, pairs, draws=6, seed=5)
    for row, length in enumerate(lengths.tolist()):
        alone = permutations(lengths[row : row + 1], pairs[row : row + 1], draws=9, seed=5)
        assert torch.equal(together[row, :, :length], alone[0, :6])


@pytest.mark.parametrize("by", ["draw", "position", "seed"])
def test_draws_positions_and_seeds_are_independent(by: str) -> None:
    """All 36 pairs of successive orders of three items are equally likely."""
    count, three = 3600, torch.full((3600,), 3)
    first = rows(*[(index, 0) for index in range(count)])
    second = rows(*[(index, 1) for index in range(count)]) if by == "position" else first
    left = permutations(three, first, draws=2, seed=7)
    right = permutations(three, second, draws=2, seed=8 if by == "seed" else 7)
    other = right[:, 1] if by == "draw" else right[:, 0]
    seen = Counter(map(tuple, torch.cat([left[:, 0], other], -1).tolist()))
    assert len(seen) == 36
    assert chisquare(list(seen.values())).pvalue > 1e-3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_permutations_on_a_gpu_are_those_on_a_cpu() -> None:
    lengths, pairs = torch.tensor([4, 300, 17]), rows((3, 0), (8, 1), (8, 2))
    here = permutations(lengths, pairs, draws=6, seed=5)
    assert torch.equal(permutations(lengths.cuda(), pairs.cuda(), draws=6, seed=5).cpu(), here)


def naive(bits: Tensor, lengths: Tensor) -> list[list[list[int]]]:
    return [
        [
            sorted(range(length), key=lambda i, line=line: line[i] % 2**31)  # type: ignore[misc]
            + list(range(length, len(line)))
            for line in lines
        ]
        for lines, length in zip(bits.tolist(), lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("items", [1, 2, 3, 64, 65, 200, 512, 513])
@pytest.mark.parametrize("kinds", [2, 5, 2**31])
def test_items_are_sorted_by_31_bits_and_then_by_their_place(items: int, kinds: int) -> None:
    """Few kinds of keys: most items agree in the bits that are sorted first, or in all of them."""
    drawn = draw_keys(items, torch.arange(6), torch.zeros(6, dtype=torch.long), 7, items)
    bits = drawn.remainder(kinds).to(torch.int32)
    bits[0] = bits[0] * 3 + 2**30  # low bits decide
    bits[1] = 2**31 - 1 - bits[1].abs()  # as high as keys beyond the row
    bits[2] = -1 - bits[2].abs()  # the highest bit counts for nothing
    lengths = torch.tensor([items, max(1, items // 2), items, 1, max(1, items - 1), items])
    kept = bits.clone()
    assert sorted_by_keys(bits, lengths).tolist() == naive(bits, lengths)
    assert torch.equal(bits, kept)


def test_threads_share_no_memory_of_a_loop() -> None:
    scratch, cpu = Scratch(), torch.device("cpu")
    mine = scratch.take("a", (4,), torch.int64, cpu).fill_(1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: scratch.take("a", (4,), torch.int64, cpu).fill_(2)).result()
    assert mine.tolist() == [1, 1, 1, 1]


def test_memory_taken_in_inference_mode_can_be_written_outside_it() -> None:
    scratch, cpu = Scratch(), torch.device("cpu")
    with torch.inference_mode():
        scratch.take("a", (4,), torch.int64, cpu)
    assert scratch.take("a", (4,), torch.int64, cpu).add_(1).shape == (4,)
