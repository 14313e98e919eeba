"""Heads as rows: changing one head among others, written out."""

import pytest
import torch

from attnlight.functional import masked_softmax, read
from attnlight.functional.candidates import Readout
from attnlight.functional.heads import (
    Candidates,
    HeadCandidates,
    head_readout,
    own_attention,
    own_items,
)


@pytest.mark.parametrize("heads", [1, 3])
def test_one_head_changed_beside_the_others(heads: int) -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(5) < 1 + torch.arange(6)[:, None] % 5
    weights = masked_softmax(torch.randn(6, heads, 5, generator=random).double(), mask)
    logits = torch.randn(6, heads, 5, 4, generator=random).double()
    logits[~mask.unsqueeze(1).expand(-1, heads, -1)] = torch.nan
    finite = logits.nan_to_num()
    others = masked_softmax(torch.randn(6, heads, 2, 5, generator=random).double(), mask)
    own, reach = own_attention(weights, mask)
    torch.testing.assert_close(own.reshape(weights.shape), weights)
    assert torch.equal(reach.reshape(weights.shape), mask.unsqueeze(1).expand_as(weights))
    folded = read(others.flatten(0, 1), own_items(own, logits, reach))
    asked = head_readout(lambda given: read(given, finite), weights)(others.flatten(0, 1))
    for head in range(heads):
        for candidate in range(2):
            changed = weights.clone()
            changed[:, head] = others[:, head, candidate]
            expected = read(changed, finite)
            for found in (folded, asked):
                one = found.reshape(6, heads, 2, 4)[:, head, candidate]
                torch.testing.assert_close(one, expected)


def test_without_a_head_dimension() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    weights = torch.tensor([[0.5, 0.25, 9.0], [2.0, 0.0, 0.0]])
    logits = torch.arange(12.0).reshape(2, 3, 2)
    own, reach = own_attention(weights, mask)
    third = 1 / 3
    torch.testing.assert_close(
        own, torch.tensor([[2 * third, third, 0], [1, 0, 0]], dtype=torch.float64)
    )
    items = own_items(own, logits, reach)
    assert torch.equal(items[reach], logits.double()[mask])
    assert (items[~reach] == 0).all()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("ascending", [False, True])
def test_candidates_are_read_where_they_stand(apart: bool, ascending: bool) -> None:
    random = torch.Generator().manual_seed(0)
    items, held = torch.randn(6, 2, 5, 3, generator=random), torch.rand(6, 2, 5, generator=random)
    rows = torch.randint(0, 5, (40,), generator=random)  # the last row has no candidate
    rows = torch.cat([rows.sort().values if ascending else rows, torch.tensor([4])])
    whole, heads = torch.rand(41, 2, 5, generator=random), torch.arange(41) % 2

    def part(some: torch.Tensor) -> Readout:
        return lambda given: read(given, items[some])

    given = (lambda given: read(given, items), held, part if apart else None)
    found = Candidates(*given).read(rows, whole)
    alone = HeadCandidates(*given).read(2 * rows + heads, whole[:, 0])
    for place, row in enumerate(rows.tolist()):
        expected = torch.einsum("hn,hnc->c", whole[place], items[row]).double()
        torch.testing.assert_close(found[place], expected, atol=1e-5, rtol=1e-5)
        changed = held[row].clone()
        changed[heads[place]] = whole[place, 0]
        expected = torch.einsum("hn,hnc->c", changed, items[row]).double()
        torch.testing.assert_close(alone[place], expected, atol=1e-5, rtol=1e-5)
    assert not len(Candidates(*given).read(rows[:0], whole[:0]))
