import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from torch import Tensor

from attnlight.functional import kendall_tau


def by_scipy(x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, other, kept in zip(x.double(), y.double(), mask, strict=True):
            result = kendalltau(one[kept].numpy(), other[kept].numpy(), method="auto")
            found.append((float(result.statistic), float(result.pvalue)))
    tau, p = torch.tensor(found, dtype=torch.float64).unbind(-1)
    return tau, p


def check(x: Tensor, y: Tensor, mask: Tensor) -> None:
    found, expected = kendall_tau(x, y, mask), by_scipy(x, y, mask)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-300, equal_nan=True)


def cases(levels: int | None, rows: int = 60, items: int = 60) -> tuple[Tensor, Tensor, Tensor]:
    """Correlated scores of texts of all lengths, with ties at so many levels."""
    random = np.random.default_rng(round(10 * (levels or 0)))
    x = random.normal(size=(rows, items))
    y = random.uniform(-1, 1, size=(rows, 1)) * x + random.normal(size=(rows, items)) / 2
    if levels is not None:
        x, y = np.round(x * levels), np.round(y * levels)
    lengths = np.arange(rows)[:, None] % (items + 1)
    mask = np.arange(items) < lengths
    mask[rows // 2 :] = random.permuted(mask[rows // 2 :], axis=1)
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(mask)


@pytest.mark.parametrize("levels", [None, 0.5, 1, 3])
def test_equals_scipy(levels: int | None) -> None:
    check(*cases(levels))


@pytest.mark.parametrize("items", [2, 3, 32, 33, 34, 35, 100, 170, 171, 172, 400])
@pytest.mark.parametrize("swaps", [0, 1, 2])
def test_orders_that_nearly_agree_have_the_exact_p(items: int, swaps: int) -> None:
    x = torch.arange(items, dtype=torch.float64)
    y = x.clone()
    for last in range(items - 1, items - 1 - min(swaps, items - 1), -1):
        y[[last, last - 1]] = y[[last - 1, last]]
    check(torch.stack([x, x]), torch.stack([y, -y]), torch.ones(2, items, dtype=torch.bool))


def test_every_permutation_of_five() -> None:
    y = torch.tensor(list(itertools.permutations(range(5))))
    check(torch.arange(5).expand_as(y), y, torch.ones_like(y, dtype=torch.bool))


def test_one_text_of_two_thousand_items() -> None:
    x, y, _ = cases(20, rows=2, items=2000)
    check(x, y, torch.ones_like(x, dtype=torch.bool))


def test_undefined_is_nan() -> None:
    x = torch.tensor([[1.0, 1, 1], [1, 2, 3], [5, 1, 2], [1, math.nan, 2], [1, math.nan, 2]])
    y = torch.tensor([[1.0, 2, 3], [2, 2, 2], [5, 1, 2], [1, 2, 3], [1, 2, 3]])
    mask = torch.tensor(
        [[True] * 3, [True] * 3, [False, True, False], [True] * 3, [True, False, True]]
    )
    tau, p = kendall_tau(x, y, mask)
    assert tau.isnan().tolist() == [True, True, True, True, False]
    assert p.isnan().tolist() == [True, True, True, True, False]
    assert (tau[4], p[4]) == (1.0, 1.0)


def test_infinite_scores_are_scores() -> None:
    x = torch.tensor([[1.0, math.inf, -math.inf, 2.0, math.inf, 0.0, 7.0]])
    y = torch.tensor([[2.0, 8.0, math.inf, 1.0, 9.0, -math.inf, 7.0]])
    check(x, y, torch.tensor([[True, True, True, True, True, True, False]]))


def test_heads_are_rows_of_their_own() -> None:
    x, y, mask = cases(2)
    tau, p = kendall_tau(torch.stack([x, y], 1), torch.stack([y, x.flip(0)], 1), mask)
    assert tau.shape == p.shape == (60, 2)
    for head, pair in enumerate([(x, y), (y, x.flip(0))]):
        expected = kendall_tau(*pair, mask)
        torch.testing.assert_close(tau[:, head], expected[0], rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(p[:, head], expected[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rows", [0, 1])
def test_small_batches(rows: int) -> None:
    for items in (0, 1, 2):
        scores = torch.arange(items, dtype=torch.float32).expand(rows, items)
        tau, _ = kendall_tau(scores, scores, torch.ones(rows, items, dtype=torch.bool))
        assert tau.shape == (rows,)
        assert tau.isnan().all() == (items < 2 or not rows)


scores = st.lists(
    st.tuples(st.sampled_from([0.0, -0.0, 1.0, 1e-300, -1e300]), st.integers(-3, 3), st.booleans()),
    min_size=2,
    max_size=12,
)


@settings(deadline=None, max_examples=200)
@given(scores)
def test_any_ties_and_masks(triples: list[tuple[float, int, bool]]) -> None:
    x, y, mask = (torch.tensor([column]) for column in zip(*triples, strict=True))
    check(x.double(), y, mask)
    with_padding = (torch.nn.functional.pad(t, (1, 3), value=0) for t in (x.double(), y, mask))
    check(*with_padding)
