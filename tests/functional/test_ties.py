import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn.functional import pad

from attnlight.functional import dense_ranks


def naive(scores: list[float]) -> list[int]:
    """Ranks of one row, walking up its sorted scores."""
    within = 1e-5 * max(map(abs, scores))
    ranks, rank, before = {}, -1, -np.inf
    for place in sorted(range(len(scores)), key=lambda n: scores[n]):
        rank += scores[place] - before > within
        ranks[place], before = rank, scores[place]
    return [ranks[n] for n in range(len(scores))]


def everything(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_of_separate_scores_are_scipys(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randint(-9, 9, (200, 12), generator=random).to(dtype)
    expected = stats.rankdata(scores.numpy(), method="dense", axis=1) - 1
    assert np.array_equal(dense_ranks(scores, everything(scores)).numpy(), expected)


def test_scores_within_a_hundred_thousandth_of_the_largest_are_ties() -> None:
    scores = torch.tensor([[-4.0, 1.0, 1.00003, 1.1], [0.0, 4e-6, 1.0, 1.00003]])
    assert dense_ranks(scores, everything(scores)).tolist() == [[0, 1, 1, 2], [0, 0, 1, 2]]


def test_ties_chain() -> None:
    scores = torch.tensor([[1.0, 1 - 9e-6, 1 - 18e-6, 0.9]], dtype=torch.float64)
    assert dense_ranks(scores, everything(scores)).tolist() == [[1, 1, 1, 0]]


def test_equal_scores_zero_scores_and_undefined_ones_are_all_tied() -> None:
    scores = torch.tensor([[0.0, -0.0, 0.0], [-2.0, -2.0, -2.0], [1.0, torch.nan, 2.0]])
    assert dense_ranks(scores, everything(scores)).tolist() == [[0, 0, 0]] * 3


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
    assert dense_ranks(row, everything(row))[0].tolist() == naive(scores)


def test_what_is_off_the_mask_is_not_read() -> None:
    random = torch.Generator().manual_seed(1)
    scores = torch.randint(0, 4, (50, 6), generator=random).double()
    own = dense_ranks(scores, everything(scores))
    mask = pad(everything(scores), (2, 3))
    for strange in (torch.nan, torch.inf, -torch.inf, 1e9, 0.0):
        found = dense_ranks(pad(scores, (2, 3), value=strange), mask)
        assert torch.equal(found, pad(own, (2, 3), value=-1))
    nothing = dense_ranks(scores, torch.zeros_like(scores, dtype=torch.bool))
    assert (nothing == -1).all()


def test_scores_on_a_graph_are_ranked() -> None:
    scores = torch.tensor([[3.0, 1.0]], requires_grad=True)
    assert dense_ranks(scores, everything(scores)).tolist() == [[1, 0]]
