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


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class Case:
    """Rows of several lengths, padded at the end, with items that attention may not reach."""

    def __init__(self, heads: int, lengths: tuple[int, ...] = (1, 2, 9, 5, 9)) -> None:
        size, count = max(lengths) + 2, len(lengths)
        places = torch.arange(size)
        self.mask = (places >= 1) & (places <= torch.tensor(lengths)[:, None])
        self.mask[2, 4] = False
        self.weights = masked_softmax(random(count, heads, size), self.mask)
        self.item_logits = random(count, heads, size, 3, seed=1)
        self.rows = torch.stack([torch.arange(count) * 7, torch.arange(count) % 2], dim=1)

    def naive_weights(self, draws: int, seed: int) -> Tensor:
        shuffled = torch.zeros(*self.weights.shape[:2], draws, self.weights.shape[2])
        shuffled = shuffled.double()
        for row in range(len(self.mask)):
            items = [n for n in range(self.mask.shape[1]) if self.mask[row, n]]
            orders = permutations(
                torch.tensor([len(items)]), self.rows[row : row + 1], draws, seed
            )[0]
            for draw in range(draws):
                for place, item in enumerate(orders[draw].tolist()):
                    own = self.weights[row, :, items[item]]
                    shuffled[row, :, draw, items[place]] = own
        return shuffled


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
    case = Case(heads)
    expected = case.naive_weights(draws=8, seed=3)
    weights = permuted_weights(case.weights, case.mask, case.rows, draws=8, seed=3)
    assert torch.equal(weights, expected)
    logits = permuted_logits(case.weights, case.item_logits, case.mask, case.rows, draws=8, seed=3)
    naive = torch.einsum("rhkn,rhnc->rkc", expected, case.item_logits)
    torch.testing.assert_close(logits, naive, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(read(weights, case.item_logits), naive, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gradients", [False, True])
def test_blocks_change_nothing(gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(heads=1, lengths=tuple(range(1, 40)))
    arguments = (case.weights, case.item_logits, case.mask, case.rows)
    with torch.set_grad_enabled(gradients):
        one_block = permuted_logits(*arguments, draws=10, seed=0)
        monkeypatch.setattr("attnlight.functional.readout.affine._CPU_KEYS", 500)
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
    monkeypatch.setattr("attnlight.functional.readout.affine._CPU_KEYS", 50)
    case = Case(2)
    given = [case.weights.clone().requires_grad_(), case.item_logits.clone().requires_grad_()]
    logits = permuted_logits(*given, case.mask, case.rows, draws=5, seed=3)
    of_weights, of_items = torch.autograd.grad(logits.sum(), given)
    off = ~case.mask[:, None]
    expected = 5 * case.item_logits.sum(-1).masked_fill(off, 0.0).sum(-1)
    torch.testing.assert_close(of_weights.masked_fill(off, 0.0).sum(-1), expected)
    torch.testing.assert_close(of_items.sum((1, 2, 3)), torch.full((5,), 5.0 * 2 * 3).double())
