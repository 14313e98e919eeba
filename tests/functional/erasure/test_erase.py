from fractions import Fraction

import pytest
import torch
from torch import Tensor

from attnlight.functional import erase_each, erase_ranking, masked_softmax


class Case:
    """Texts of several lengths, padded and with an unattended first item, some weights 0."""

    def __init__(self, heads: int | None, classes: int = 3, rows: int = 30, items: int = 9) -> None:
        random = torch.Generator().manual_seed(classes + 10 * (heads or 0))
        shape = (rows, items) if heads is None else (rows, heads, items)
        places = torch.arange(items)
        self.mask = (places >= 1) & (places <= 1 + torch.arange(rows)[:, None] % (items - 1))
        scores = torch.randn(shape, dtype=torch.float64, generator=random)
        scores = scores.masked_fill(torch.rand(shape, generator=random) < 0.2, -2000.0)
        self.weights = masked_softmax(scores, self.mask)
        self.item_logits = torch.randn(*shape, classes, dtype=torch.float64, generator=random)
        self.bias = torch.randn(rows, classes, dtype=torch.float64, generator=random)
        keys = torch.rand(rows, items, generator=random).masked_fill(~self.mask, 2.0)
        self.order = keys.argsort(-1)

    def naive(self, row: int, erased: list[int]) -> Tensor:
        """Logits of a row with these items gone, one head and one item at a time."""
        single = self.weights.ndim == 2
        weights = self.weights[row][None] if single else self.weights[row]
        items = self.item_logits[row][None] if single else self.item_logits[row]
        logits = torch.zeros_like(self.bias[row])
        for own, values in zip(weights, items, strict=True):
            left = own.clone()
            left[erased] = 0.0
            mass = sum(left.tolist())
            if mass == 0:
                logits += self.bias[row] / len(weights)
            for weight, value in zip(left.tolist(), values, strict=True):
                if weight > 0:
                    logits += weight / mass * value
        return logits

    def items(self, row: int) -> list[int]:
        return [n for n in range(self.mask.shape[1]) if self.mask[row, n]]


@pytest.mark.parametrize("heads", [None, 1, 3])
def test_each_equals_a_naive_loop(heads: int | None) -> None:
    case = Case(heads)
    found = erase_each(case.weights, case.item_logits, case.bias, case.mask)
    assert found.dtype == torch.float64
    for row in range(30):
        for item in case.items(row):
            torch.testing.assert_close(found[row, item], case.naive(row, [item]))
        last = case.items(row)[-1]
        for item in set(range(9)) - set(case.items(row)):
            assert torch.equal(found[row, item], found[row, last])


@pytest.mark.parametrize("heads", [None, 1, 3])
def test_ranking_equals_a_naive_loop(heads: int | None) -> None:
    case = Case(heads)
    found = erase_ranking(case.weights, case.item_logits, case.bias, case.mask, case.order)
    assert found.dtype == torch.float64
    for row in range(30):
        count = len(case.items(row))
        assert sorted(case.order[row, :count].tolist()) == case.items(row)
        for k in range(count):
            erased = case.order[row, : k + 1].tolist()
            torch.testing.assert_close(found[row, k], case.naive(row, erased))
        torch.testing.assert_close(found[row, count - 1 :], case.bias[row].expand(10 - count, -1))


def test_what_is_left_of_one_part_in_a_hundred_million_keeps_its_digits() -> None:
    weights = torch.tensor([[1.0, 3e-9, 7e-9, 1e-30]])
    items = torch.tensor([[[1e3, -1e3], [1.0, 2.0], [-5.0, 0.5], [3.0, 3.5]]])
    bias, mask = torch.zeros(2), torch.ones(1, 4).bool()
    order = torch.tensor([[0, 2, 1, 3]])
    ranked = erase_ranking(weights, items, bias, mask, order)[0]
    each = erase_each(weights, items, bias, mask)[0]

    def exact(left: list[int]) -> list[float]:
        own = [Fraction(weight) for weight in weights[0].tolist()]
        mass = sum(own[n] for n in left)
        return [
            float(sum(own[n] * Fraction(items[0, n, c].item()) for n in left) / mass)
            for c in (0, 1)
        ]

    for k, left in enumerate([[1, 2, 3], [1, 3], [3]]):
        assert ranked[k].tolist() == pytest.approx(exact(left), rel=1e-14)
    for n in range(4):
        left = [other for other in range(4) if other != n]
        assert each[n].tolist() == pytest.approx(exact(left), rel=1e-14)
