import pytest
import torch
from torch import Tensor

from attnlight.functional import (
    masked_softmax,
    permutations,
    permuted_logits,
    permuted_weights,
    read,
)
from attnlight.functional._cpu import Budget
from tests.functional.erasure.test_erase import Case


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


class Keyed(Case):
    """Rows with keys, one of which has an item that attention may not reach."""

    def __init__(self, heads: int, rows: int = 30) -> None:
        super().__init__(heads, rows=rows)
        self.mask[4, 3] = False
        self.weights = masked_softmax(random(rows, heads, 9), self.mask)
        self.rows = torch.stack([torch.arange(rows) * 7, torch.arange(rows) % 2], dim=1)

    def shuffled(self, draws: int, seed: int) -> Tensor:
        """Weights (R, H, K, N), an item at a time."""
        found = torch.zeros(*self.weights.shape[:2], draws, self.weights.shape[2]).double()
        for row in range(len(self.mask)):
            items, keys = self.items(row), self.rows[row : row + 1]
            orders = permutations(torch.tensor([len(items)]), keys, draws, seed)[0]
            for draw in range(draws):
                for place, item in enumerate(orders[draw].tolist()):
                    found[row, :, draw, items[place]] = self.weights[row, :, items[item]]
        return found


@pytest.mark.parametrize(
    ("weights", "items", "formula"),
    [
        ((4, 6), (4, 6, 3), "bn,bnc->bc"),
        ((4, 5, 6), (4, 6, 3), "bkn,bnc->bkc"),
        ((4, 2, 6), (4, 2, 6, 3), "bhn,bhnc->bc"),
        ((4, 2, 5, 6), (4, 2, 6, 3), "bhkn,bhnc->bkc"),
        ((4, 1, 6), (4, 1, 6, 2), "bhn,bhnc->bc"),
        ((0, 2, 6), (0, 2, 6, 3), "bhn,bhnc->bc"),
    ],
)
def test_read_is_the_sum_over_heads_and_items(
    weights: tuple[int, ...], items: tuple[int, ...], formula: str
) -> None:
    w, z = random(*weights), random(*items, seed=1)
    torch.testing.assert_close(read(w, z), torch.einsum(formula, w, z), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_shuffles_equal_a_naive_loop(heads: int) -> None:
    case = Keyed(heads)
    expected = case.shuffled(draws=8, seed=3)
    weights = permuted_weights(case.weights, case.mask, case.rows, draws=8, seed=3)
    assert torch.equal(weights, expected)
    logits = permuted_logits(case.weights, case.item_logits, case.mask, case.rows, draws=8, seed=3)
    naive = torch.einsum("rhkn,rhnc->rkc", expected, case.item_logits)
    torch.testing.assert_close(logits, naive, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(read(weights, case.item_logits), naive, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gradients", [False, True])
def test_blocks_change_nothing(gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Keyed(heads=1, rows=40)
    arguments = (case.weights, case.item_logits, case.mask, case.rows)
    with torch.set_grad_enabled(gradients):
        one_block = permuted_logits(*arguments, draws=10, seed=0)
        monkeypatch.setattr("attnlight.functional.readout.affine._KEYS", Budget(500, 500))
        blocks = permuted_logits(*arguments, draws=10, seed=0)
    torch.testing.assert_close(blocks, one_block, rtol=1e-12, atol=1e-12)


def test_rows_that_share_their_draws_are_shuffled_alike_and_as_if_alone() -> None:
    """As a sentence's tokens are; texts of one index but of several lengths are not."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.tensor([5, 5, 3, 3, 3, 7, 5])
    rows = torch.tensor([[4, 0], [4, 0], [4, 0], [9, 0], [9, 0], [9, 0], [4, 0]])
    mask = torch.arange(7) < lengths[:, None]
    weights = torch.rand(7, 2, 7, dtype=torch.float64, generator=random) * mask[:, None]
    logits = torch.randn(7, 2, 7, 3, dtype=torch.float64, generator=random)
    found = permuted_logits(weights, logits, mask, rows, draws=6, seed=1)
    by_head = permuted_logits(weights, logits, mask, rows, draws=6, seed=1, by_head=True)
    shuffled = permuted_weights(weights, mask, rows, draws=6, seed=1)
    for row in range(7):
        alone = (weights[row : row + 1], mask[row : row + 1], rows[row : row + 1])
        torch.testing.assert_close(shuffled[row], permuted_weights(*alone, draws=6, seed=1)[0])
    torch.testing.assert_close(found, (shuffled @ logits).sum(1))
    torch.testing.assert_close(by_head, shuffled @ logits)


def test_gradients_reach_weights_and_items_through_shuffles_of_several_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnlight.functional.readout.affine._KEYS", Budget(50, 50))
    case = Keyed(2)
    given = [case.weights.clone().requires_grad_(), case.item_logits.clone().requires_grad_()]
    logits = permuted_logits(*given, case.mask, case.rows, draws=5, seed=3)
    of_weights, of_items = torch.autograd.grad(logits.sum(), given)
    off = ~case.mask[:, None]
    expected = 5 * case.item_logits.sum(-1).masked_fill(off, 0.0).sum(-1)
    torch.testing.assert_close(of_weights.masked_fill(off, 0.0).sum(-1), expected)
    torch.testing.assert_close(of_items.sum((1, 2, 3)), torch.full((30,), 5.0 * 2 * 3).double())
