"""Where the readout is affine, reading candidates and the closed forms are the same."""

import pytest
import torch
from torch import Tensor

from attnlight.functional import erase_each, first_flip, weight_gradient
from attnlight.functional.readout import opaque as candidates
from attnlight.functional.readout.opaque import (
    erase_each_opaque,
    first_flip_opaque,
    readout_gradient,
)
from tests.functional.erasure.test_erase import Case


class Affine:
    """A readout of a case, which counts the candidates it is given at once."""

    def __init__(self, case: Case) -> None:
        single = case.weights.ndim == 2
        self.items = case.item_logits.unsqueeze(1) if single else case.item_logits
        self.weights = case.weights.unsqueeze(1) if single else case.weights
        self.bias = case.bias
        self.most = 0

    def __call__(self, weights: Tensor) -> Tensor:
        # A head without weight has an empty context: its share of the bias.
        left = weights.sum(-1, keepdim=True)
        share = self.bias[:, None, None] / weights.shape[1]
        return (weights @ self.items + (1 - left) * share).sum(1)

    def ask(self, rows: Tensor, attentions: Tensor) -> Tensor:
        """Candidates (E, H, N) of rows (E,)."""
        self.most = max(self.most, len(rows))
        wide = torch.zeros(len(self.items), *attentions.shape[1:]).to(attentions)
        found = []
        for row, attention in zip(rows.tolist(), attentions, strict=True):
            wide[row] = attention
            found.append(self(wide.unsqueeze(2))[row, 0])
        return torch.stack(found) if found else attentions.new_zeros(0, self.items.shape[-1])


@pytest.mark.parametrize("heads", [None, 1, 3])
def test_erasure_equals_the_closed_form(heads: int | None) -> None:
    case = Case(heads)
    affine = Affine(case)
    own = affine(affine.weights.unsqueeze(2)).squeeze(1)
    weights = affine.weights.masked_fill(~case.mask.unsqueeze(1), 0.0)
    each = erase_each_opaque(affine.ask, weights, case.bias, case.mask, own)
    closed = erase_each(case.weights, case.item_logits, case.bias, case.mask)
    torch.testing.assert_close(each[case.mask], closed[case.mask])
    orders = torch.stack([case.order], dim=1)
    found = first_flip_opaque(affine.ask, weights, case.bias, case.mask, own, orders)
    closed = first_flip(case.weights, case.item_logits, case.bias, case.mask, orders)
    held = case.mask.any(-1)
    assert torch.equal(found[held], closed[held])
    assert found.unique().numel() > 4


def test_candidates_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(2)
    affine = Affine(case)
    own = affine(affine.weights.unsqueeze(2)).squeeze(1)
    weights = affine.weights.masked_fill(~case.mask.unsqueeze(1), 0.0)
    given = (affine.ask, weights, case.bias, case.mask, own)
    whole, counts = erase_each_opaque(*given), first_flip_opaque(*given, case.order.unsqueeze(1))
    affine.most = 0
    monkeypatch.setattr(candidates, "_WEIGHTS", 2 * weights[0].numel() + 1)
    torch.testing.assert_close(erase_each_opaque(*given), whole)
    assert affine.most == 2
    assert torch.equal(first_flip_opaque(*given, case.order.unsqueeze(1)), counts)


@pytest.mark.parametrize("heads", [1, 3])
def test_gradient_equals_the_closed_form(heads: int) -> None:
    case = Case(heads)
    held = (case.weights.sum(-1) > 0.5).all(-1)
    effects = case.item_logits - case.bias[:, None, None] / heads

    def readout(weights: Tensor) -> Tensor:
        return (weights @ effects).sum(1) + case.bias.unsqueeze(1)

    with torch.no_grad():
        found = readout_gradient(readout, case.weights, case.mask)
    expected = weight_gradient(case.weights, case.item_logits, case.bias, case.mask)
    assert held.sum() > 15
    torch.testing.assert_close(found[held], expected[held])
    assert not found.requires_grad
