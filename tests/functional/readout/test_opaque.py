"""Candidates of a readout are read in pieces of bounded size."""

import pytest
import torch
from torch import Tensor

from attnlight.functional.readout import opaque as candidates
from attnlight.functional.readout.opaque import (
    erase_each_opaque,
    first_flip_opaque,
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
