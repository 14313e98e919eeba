from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn.functional import pad

from attnlight.functional import dense_ranks, random_rankings, ranking
from attnlight.functional.ranking import first_items, random_others, top_share


def keys(rows: int, start: int = 0) -> Tensor:
    """Keys of rows whose dataset index counts up from `start`."""
    return torch.stack([torch.arange(start, start + rows), torch.zeros(rows).long()], dim=1)


def every(rows: int, items: int) -> Tensor:
    return torch.ones(rows, items, dtype=torch.bool)


class TestRanking:
    def test_equals_a_stable_sort_of_separate_scores(self) -> None:
        scores = torch.randint(-5, 5, (300, 20), generator=torch.Generator().manual_seed(0)).float()
        expected = scores.argsort(dim=-1, descending=True, stable=True)
        assert torch.equal(ranking(scores, every(300, 20)), expected)

    def test_rows_that_are_undefined_or_empty_still_hold_every_place(self) -> None:
        scores = torch.tensor([[torch.nan, 1.0, 2.0], [5.0, 6.0, 7.0]])
        mask = torch.tensor([[True, True, True], [False, False, False]])
        assert ranking(scores, mask).tolist() == [[0, 1, 2]] * 2


def test_first_items_of_several_orders_and_counts() -> None:
    orders = torch.tensor([[[2, 0, 3, 1], [3, 2, 0, 1]]])
    found = first_items(orders.unsqueeze(2), torch.tensor([[1, 2, 3]]).unsqueeze(1))
    assert found.int().tolist() == [
        [[[0, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1]], [[0, 0, 0, 1], [0, 0, 1, 1], [1, 0, 1, 1]]]
    ]


def test_nearly_equal_scores_share_the_top_unless_exact() -> None:
    scores, count = torch.tensor([[1.0, 1.0 + 1e-7, 0.5]], dtype=torch.float64), torch.tensor([1])
    assert top_share(scores, count, every(1, 3)).tolist() == [[0.5, 0.5, 0.0]]
    assert top_share(scores, count, every(1, 3), exact=True).tolist() == [[0.0, 1.0, 0.0]]


class TestRandomRankings:
    def test_are_permutations_with_the_rest_last(self) -> None:
        mask = torch.rand(60, 11, generator=torch.Generator().manual_seed(0)) < 0.6
        found = random_rankings(mask, keys(60), 4, seed=1)
        assert torch.equal(found.sort(-1).values, torch.arange(11).expand(60, 4, 11))
        reached = mask.unsqueeze(1).expand(-1, 4, -1).gather(-1, found)
        assert torch.equal(
            reached, mask.sort(-1, descending=True).values[:, None].expand(-1, 4, -1)
        )

    def test_are_a_function_of_seed_row_draw_and_length(self) -> None:
        mask = torch.arange(8) < 1 + torch.arange(30)[:, None] % 8
        found = random_rankings(mask, keys(30), 5, seed=3)
        for row in range(30):
            length = int(mask[row].sum())
            alone = random_rankings(every(1, length), keys(1, row), 2, seed=3)
            assert torch.equal(alone[0], found[row, :2, :length])
        assert not torch.equal(found, random_rankings(mask, keys(30), 5, seed=4))
        moved = random_rankings(pad(mask, (2, 1)), keys(30), 5, seed=3)
        assert torch.equal(moved[-1, :, :6], found[-1, :, :6] + 2)

    def test_nothing_to_order(self) -> None:
        found = random_rankings(torch.zeros(2, 3).bool(), keys(2), 2, seed=0)
        assert torch.equal(found, torch.arange(3).expand(2, 2, 3))


class TestRandomOthers:
    @pytest.mark.parametrize("top", range(4))
    def test_are_uniform_and_never_the_given_item(self, top: int) -> None:
        mask = torch.tensor([[False, True, True, False, True, True]]).expand(3_000, -1)
        place = [1, 2, 4, 5][top]
        first = torch.full((3_000, 1), place)
        counts = Counter(random_others(mask, keys(3_000), first, seed=0).flatten().tolist())
        assert set(counts) == {1, 2, 4, 5} - {place}
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_equal_items_have_equal_others_and_rows_are_on_their_own(self) -> None:
        mask = torch.arange(9) < 2 + torch.arange(40)[:, None] % 8
        first = torch.randint(0, 2, (40, 3), generator=torch.Generator().manual_seed(0))
        found = random_others(mask, keys(40), first, seed=5)
        assert (found != first).all()
        assert mask.gather(-1, found).all()
        for row in range(40):
            length = int(mask[row].sum())
            alone = random_others(every(1, length), keys(1, row), first[row : row + 1], seed=5)
            assert torch.equal(alone[0], found[row])
            same = first[row] == first[row, 0]
            assert found[row][same].unique().numel() == 1

    def test_no_other_item(self) -> None:
        mask = torch.tensor([[True], [False]])
        assert random_others(mask, keys(2), torch.zeros(2, 1).long(), seed=0).tolist() == [[0], [0]]


class TestReleasedItem:
    """Defect D1 of the released code: a number from 1 to L - 1, used as a place."""

    @pytest.mark.parametrize("length", [2, 3, 5])
    def test_is_any_place_but_the_first(self, length: int) -> None:
        mask = pad(every(4_000, length), (1, 2))
        first = torch.full((4_000, 1), 2)
        found = random_others(mask, keys(4_000), first, seed=0, released=True)
        counts = Counter(found.flatten().tolist())
        assert set(counts) == set(range(2, length + 1))
        if length > 2:
            assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def naive(scores: list[float]) -> list[int]:
    """Ranks of one row, walking up its sorted scores."""
    within = 1e-5 * max(map(abs, scores))
    ranks, rank, before = {}, -1, -np.inf
    for place in sorted(range(len(scores)), key=lambda n: scores[n]):
        rank += scores[place] - before > within
        ranks[place], before = rank, scores[place]
    return [ranks[n] for n in range(len(scores))]


def test_equal_scores_zero_scores_and_undefined_ones_are_all_tied() -> None:
    scores = torch.tensor([[0.0, -0.0, 0.0], [-2.0, -2.0, -2.0], [1.0, torch.nan, 2.0]])
    assert dense_ranks(scores, every(3, 3)).tolist() == [[0, 0, 0]] * 3


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 1 + 3e-6, 1 + 9e-6]),
        min_size=1,
        max_size=9,
    )
)
def test_equals_a_naive_walk(scores: list[float]) -> None:
    row = torch.tensor([scores], dtype=torch.float64)
    assert dense_ranks(row, every(1, len(scores)))[0].tolist() == naive(scores)
