from concurrent.futures import ThreadPoolExecutor

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


def test_read_takes_an_expanded_view() -> None:
    w, z = random(4, 2, 6), random(1, 1, 6, 3).expand(4, 2, 6, 3)
    torch.testing.assert_close(read(w, z), read(w, z.contiguous()))


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


def test_shuffles_move_the_weights_but_keep_them() -> None:
    case = Case(heads=1)
    weights = permuted_weights(case.weights, case.mask, case.rows, draws=8, seed=3)
    own = case.weights.unsqueeze(2).expand_as(weights)
    assert torch.equal(weights.sort(-1).values, own.sort(-1).values)
    assert torch.equal(weights[0], own[0])  # one item: nothing to shuffle
    moved = (weights != own).any(-1).double().mean((1, 2))
    assert (moved[2:] > 0.8).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shuffles_depend_on_neither_padding_nor_batch(dtype: torch.dtype) -> None:
    case = Case(heads=2)
    weights, items = case.weights.to(dtype), case.item_logits.to(dtype)
    together = permuted_logits(weights, items, case.mask, case.rows, draws=20, seed=3)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    for row in torch.randperm(5, generator=torch.Generator().manual_seed(0)).tolist():
        pad = torch.nn.functional.pad
        one = slice(row, row + 1)
        # Padding before, behind and between the items.
        mask = pad(case.mask[one].repeat_interleave(2, dim=1), (3, 4))
        mask[:, 4::2] = False
        wide = pad(weights[one].repeat_interleave(2, dim=2), (3, 4)).masked_fill(~mask[:, None], 0)
        wide_items = pad(items[one].repeat_interleave(2, dim=2), (0, 0, 3, 4), value=5.0)
        alone = permuted_logits(wide, wide_items, mask, case.rows[one], draws=20, seed=3)
        torch.testing.assert_close(alone, together[one], rtol=tolerance, atol=tolerance)
        alone_weights = permuted_weights(wide, mask, case.rows[one], draws=20, seed=3)
        batch = permuted_weights(weights, case.mask, case.rows, draws=20, seed=3)[one]
        assert torch.equal(alone_weights[..., mask[0]], batch[..., case.mask[row]])


@pytest.mark.parametrize("gradients", [False, True])
def test_blocks_change_nothing(gradients: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(heads=1, lengths=tuple(range(1, 40)))
    arguments = (case.weights, case.item_logits, case.mask, case.rows)
    with torch.set_grad_enabled(gradients):
        one_block = permuted_logits(*arguments, draws=10, seed=0)
        monkeypatch.setattr("attnlight.functional.readout.affine._CPU_KEYS", 500)
        blocks = permuted_logits(*arguments, draws=10, seed=0)
    torch.testing.assert_close(blocks, one_block, rtol=1e-12, atol=1e-12)


def test_rows_without_items_and_batches_without_rows() -> None:
    mask = torch.tensor([[False, False], [True, True]])
    weights = torch.tensor([[[0.0, 0.0]], [[0.5, 0.5]]])
    items = torch.ones(2, 1, 2, 2)
    pairs = torch.zeros(2, 2, dtype=torch.long)
    logits = permuted_logits(weights, items, mask, pairs, draws=3, seed=0)
    assert logits[:, :, 0].tolist() == [[0, 0, 0], [1, 1, 1]]
    alone = permuted_logits(weights[:1], items[:1], mask[:1], pairs[:1], draws=3, seed=0)
    assert (alone == 0).all()
    none = permuted_weights(weights[:0], mask[:0], pairs[:0], draws=3, seed=0)
    assert none.shape == (0, 1, 3, 2)


def test_logits_have_gradients() -> None:
    case = Case(heads=2)
    items = case.item_logits.clone().requires_grad_()
    permuted_logits(case.weights, items, case.mask, case.rows, draws=4, seed=0).sum().backward()
    assert items.grad is not None
    torch.testing.assert_close(items.grad.sum((1, 2, 3)), torch.full((5,), 4.0 * 2 * 3).double())


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


@pytest.mark.parametrize("heads", [1, 2])
def test_logits_by_head_add_up_to_those_of_all_heads(heads: int) -> None:
    case = Case(heads)
    arguments = (case.weights, case.item_logits, case.mask, case.rows)
    parts = permuted_logits(*arguments, draws=5, seed=3, by_head=True)
    logits = permuted_logits(*arguments, draws=5, seed=3)
    torch.testing.assert_close(parts.sum(1), logits, rtol=1e-12, atol=1e-12)


def test_items_before_padding_are_shuffled_like_items_anywhere() -> None:
    case = Case(2)
    order = case.mask.byte().sort(dim=-1, descending=True, stable=True).indices
    wide = order[:, None].expand_as(case.weights)
    items = case.item_logits.gather(2, wide.unsqueeze(-1).expand_as(case.item_logits))
    first = (case.weights.gather(-1, wide), items, case.mask.gather(-1, order), case.rows)
    here = permuted_logits(case.weights, case.item_logits, case.mask, case.rows, draws=5, seed=3)
    assert torch.equal(permuted_logits(*first, draws=5, seed=3), here)


@torch.no_grad()
def test_shuffles_in_threads_do_not_mix() -> None:
    case = Case(2, (40, 7, 33))
    arguments = (case.weights, case.item_logits, case.mask, case.rows)
    alone = permuted_logits(*arguments, draws=50, seed=3)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: permuted_logits(*arguments, draws=50, seed=3), range(12)))
    assert all(torch.equal(each, alone) for each in found)


@torch.no_grad()
def test_a_second_batch_leaves_the_first_as_it_was() -> None:
    first, second = Case(2), Case(2, (12, 3, 9, 9, 12, 7))
    arguments = (first.weights, first.item_logits, first.mask, first.rows)
    logits = permuted_logits(*arguments, draws=5, seed=3)
    shuffled = permuted_weights(first.weights, first.mask, first.rows, draws=5, seed=3)
    kept = logits.clone(), shuffled.clone()
    permuted_logits(second.weights, second.item_logits, second.mask, second.rows, draws=5, seed=4)
    assert torch.equal(logits, kept[0])
    assert torch.equal(shuffled, kept[1])


def test_gradients_reach_weights_through_shuffles_of_several_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnlight.functional.readout.affine._CPU_KEYS", 50)
    case = Case(1)
    weights = case.weights.clone().requires_grad_()
    logits = permuted_logits(weights, case.item_logits, case.mask, case.rows, draws=5, seed=3)
    logits.sum().backward()
    assert weights.grad is not None
    mean = case.item_logits.sum(-1).masked_fill(~case.mask[:, None], 0.0)
    torch.testing.assert_close(
        weights.grad.masked_fill(~case.mask[:, None], 0.0).sum(-1), 5 * mean.sum(-1)
    )
