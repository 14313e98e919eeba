"""Where the readout is affine, reading candidates and the closed forms are the same."""

import pytest
import torch
from torch import Tensor

from attnlight.functional import candidates, erase_each, erase_ranking, weight_gradient
from attnlight.functional.candidates import read_each, read_ranking, readout_gradient
from tests.functional.test_erasure import Case


class Affine:
    """A readout of a case, which counts the candidates it is given at once."""

    def __init__(self, case: Case) -> None:
        single = case.weights.ndim == 2
        self.items = case.item_logits.unsqueeze(1) if single else case.item_logits
        self.weights = case.weights.unsqueeze(1) if single else case.weights
        self.bias = case.bias
        self.most = 0

    def __call__(self, weights: Tensor) -> Tensor:
        self.most = max(self.most, weights.shape[2])
        # A head without weight has an empty context: its share of the bias.
        left = weights.sum(-1, keepdim=True)
        share = self.bias[:, None, None] / weights.shape[1]
        return (weights @ self.items + (1 - left) * share).sum(1)


@pytest.mark.parametrize("heads", [None, 1, 3])
def test_erasure_equals_the_closed_form(heads: int | None) -> None:
    case = Case(heads)
    affine = Affine(case)
    each = read_each(affine, affine.weights, case.bias, case.mask)
    closed = erase_each(case.weights, case.item_logits, case.bias, case.mask)
    torch.testing.assert_close(each[case.mask], closed[case.mask])
    ranked = read_ranking(affine, affine.weights, case.bias, case.mask, case.order)
    closed = erase_ranking(case.weights, case.item_logits, case.bias, case.mask, case.order)
    torch.testing.assert_close(ranked, closed)


def test_candidates_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(2)
    affine = Affine(case)
    whole = read_ranking(affine, affine.weights, case.bias, case.mask, case.order)
    assert affine.most == 9
    affine.most = 0
    monkeypatch.setattr(candidates, "_WEIGHTS", 2 * affine.weights.numel() + 1)
    pieces = read_ranking(affine, affine.weights, case.bias, case.mask, case.order)
    assert affine.most == 2
    torch.testing.assert_close(pieces, whole)


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
