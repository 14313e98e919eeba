import pytest
import torch
from torch import Tensor

from attnlight.functional import draw_keys
from attnlight.functional.shuffling import sorted_by_keys


def naive(bits: Tensor, lengths: Tensor) -> list[list[list[int]]]:
    return [
        [
            sorted(range(length), key=lambda i, line=line: line[i] % 2**31)  # type: ignore[misc]
            + list(range(length, len(line)))
            for line in lines
        ]
        for lines, length in zip(bits.tolist(), lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("items", [1, 2, 3, 64, 65, 200, 512, 513])
@pytest.mark.parametrize("kinds", [2, 5, 2**31])
def test_items_are_sorted_by_31_bits_and_then_by_their_place(items: int, kinds: int) -> None:
    """Few kinds of keys: most items agree in the bits that are sorted first, or in all of them."""
    drawn = draw_keys(items, torch.arange(6), torch.zeros(6, dtype=torch.long), 7, items)
    bits = drawn.remainder(kinds).to(torch.int32)
    bits[0] = bits[0] * 3 + 2**30  # low bits decide
    bits[1] = 2**31 - 1 - bits[1].abs()  # as high as keys beyond the row
    bits[2] = -1 - bits[2].abs()  # the highest bit counts for nothing
    lengths = torch.tensor([items, max(1, items // 2), items, 1, max(1, items - 1), items])
    kept = bits.clone()
    assert sorted_by_keys(bits, lengths).tolist() == naive(bits, lengths)
    assert torch.equal(bits, kept)
