import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr
from torch import Tensor

from attnlight.functional import (
    kendall_tau,
    pearson_r,
    rank_agreement,
    spearman_rho,
    top_overlap,
)


def by_scipy(x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Kendall's tau-b, its p-value and Spearman's rho, each (R,) float64."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, other, kept in zip(x.double(), y.double(), mask, strict=True):
            pair = one[kept].numpy(), other[kept].numpy()
            rho = spearmanr(*pair).statistic if kept.sum() > 1 else math.nan  # it refuses fewer
            found.append([*kendalltau(*pair, method="auto"), rho])
    return torch.tensor(found, dtype=torch.float64).unbind(-1)


def check(x: Tensor, y: Tensor, mask: Tensor) -> None:
    found, expected = kendall_tau(x, y, mask), by_scipy(x, y, mask)[:2]
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
        found = tau[:, head], p[:, head]
        expected = kendall_tau(*pair, mask)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


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


@pytest.mark.parametrize("levels", [None, 0.5, 1, 3])
def test_spearman_equals_scipy(levels: int | None) -> None:
    x, y, mask = cases(levels)
    rho = spearman_rho(x, y, mask)
    torch.testing.assert_close(rho, by_scipy(x, y, mask)[2], equal_nan=True)
    assert 0 < rho.isnan().sum() < 20
    assert spearman_rho(x, x, mask).nan_to_num(1.0).eq(1).all()


@pytest.mark.parametrize("levels", [None, 0.5, 3])
def test_pearson_equals_scipy(levels: int | None) -> None:
    x, y, mask = cases(levels)
    r = pearson_r(x, y, mask)
    for found, one, other, kept in zip(r, x, y, mask, strict=True):
        pair = one[kept].numpy(), other[kept].numpy()
        defined = kept.sum() > 1 and all(np.ptp(of) > 0 for of in pair)
        expected = pearsonr(*pair).statistic if defined else math.nan
        assert float(found) == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert 0 < r.isnan().sum() < 20
    assert pearson_r(x * 1e-30, y * 1e8, mask).allclose(r, equal_nan=True)


def test_pearson_of_scores_tied_up_to_rounding_is_undefined() -> None:
    tied = torch.full((1, 7), 1 / 7) * torch.tensor([1, 1 + 1e-7, 1, 1 - 1e-7, 1, 1, 1])
    mask = torch.ones(1, 7, dtype=torch.bool)
    assert pearson_r(tied, torch.arange(7.0)[None], mask).isnan().all()
    assert pearson_r(torch.tensor([[1.0, math.nan]]), torch.ones(1, 2), mask[:, :2]).isnan().all()


def tops(scores: Tensor, k: int) -> list[set[int]]:
    """Every set of k top items that some order of tied items gives, once for each such order."""
    found = []
    for order in itertools.permutations(range(len(scores))):
        ranked = sorted(order, key=lambda item: -float(scores[item]))  # a stable sort
        found.append(set(ranked[:k]))
    return found


@pytest.mark.parametrize("items", [2, 3, 5, 6])
@pytest.mark.parametrize("levels", [1, 2, 9])
def test_overlap_is_the_mean_over_orders_of_tied_items(
    items: int, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlight.functional.correlation.TOP", 2)  # half of the items
    k = -(-items // 2)
    random = torch.Generator().manual_seed(10 * items + levels)
    x, y = torch.randint(levels, (2, 4, items), generator=random).double()
    padded = torch.nn.functional.pad(torch.stack([x, y]), (1, 2), value=99.0)
    mask = torch.zeros(padded.shape[1:], dtype=torch.bool)
    mask[:, 1 : items + 1] = True
    for row, found in enumerate(top_overlap(*padded, mask)):
        ones, others = tops(x[row], k), tops(y[row], k)
        # The two scorings' ties are broken independently: all pairs are equally likely.
        chances = [
            sum(item in top for top in ones) * sum(item in top for top in others)
            for item in range(items)
        ]
        expected = sum(chances) / len(ones) / len(others) / k
        assert float(found) == pytest.approx(expected, abs=1e-12)


def test_overlap_is_chance_where_a_scoring_ties_all_and_undefined_for_one_item() -> None:
    x, y = torch.zeros(3, 25), torch.arange(75.0).view(3, 25)
    mask = torch.arange(25) < torch.tensor([[25], [12], [1]])
    found = top_overlap(x, y, mask)
    assert found[:2].tolist() == pytest.approx([3 / 25, 2 / 12])
    assert found[2].isnan()


def test_agreement_ties_scores_within_rounding_and_order_of_items_changes_nothing() -> None:
    x, y, mask = cases(1, rows=40, items=30)
    noise = 1e-7 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    exact, found = rank_agreement(x, y, mask), rank_agreement(x + noise, y, mask)
    assert list(found) == ["tau", "spearman", "overlap"]
    torch.testing.assert_close(found["tau"], kendall_tau(x, y, mask)[0], equal_nan=True)
    turned = rank_agreement(x.flip(-1), y.flip(-1), mask.flip(-1))
    torch.testing.assert_close(found, exact, equal_nan=True)
    torch.testing.assert_close(turned, exact, equal_nan=True)
    x[3, 0] = x[4, 29] = math.nan
    mask[3, 0], mask[4, 29] = True, False
    broken = rank_agreement(x, y, mask)
    for values in broken.values():
        assert values[3].isnan()
        assert values[4].isnan() == exact["overlap"][4].isnan()
