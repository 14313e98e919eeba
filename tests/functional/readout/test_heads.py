"""Heads as rows: changing one head among others, written out."""

import pytest
import torch

from attnlight.functional import masked_softmax, read
from attnlight.functional.readout.heads import (
    flatten_heads,
    flatten_item_logits,
    head_readout,
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
    own, reach = flatten_heads(weights, mask)
    torch.testing.assert_close(own.reshape(weights.shape), weights)
    assert torch.equal(reach.reshape(weights.shape), mask.unsqueeze(1).expand_as(weights))
    folded = read(others.flatten(0, 1), flatten_item_logits(own, logits, reach))
    asked = head_readout(lambda given: read(given, finite), weights)(others.flatten(0, 1))
    for head in range(heads):
        for candidate in range(2):
            changed = weights.clone()
            changed[:, head] = others[:, head, candidate]
            expected = read(changed, finite)
            for found in (folded, asked):
                one = found.reshape(6, heads, 2, 4)[:, head, candidate]
                torch.testing.assert_close(one, expected)


ROWS, ITEMS = 11, 6
