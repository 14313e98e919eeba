"""Shares, sets and their means against counting, and choices of rows."""

import math

import pytest
import torch

from attnlight.functional.attribution.faithfulness import (
    choose_rows,
    probability_drops,
    share_counts,
)

SHARES = [0.01, 0.05, 0.1, 0.2, 0.5]


def test_shares_are_rounded_up_as_they_are_written() -> None:
    found = share_counts(torch.tensor([1, 3, 20, 21, 100, 101]), [*SHARES, 0.07, 1.0])
    assert found.tolist() == [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 2, 1, 3],
        [1, 1, 2, 4, 10, 2, 20],
        [1, 2, 3, 5, 11, 2, 21],
        [1, 5, 10, 20, 50, 7, 100],
        [2, 6, 11, 21, 51, 8, 101],
    ]
    assert math.ceil(0.07 * 100) == 8, "what floating point would give"


def test_drops_keep_their_digits_near_certainty() -> None:
    logits = torch.tensor([[[0.0, 61.0], [0.0, 59.0], [60.0, 0.0]]])
    found = probability_drops(logits, torch.tensor([[0.0, 60.0]]), torch.tensor([1]))[0]
    assert float(found[0]) == pytest.approx(math.exp(-61) - math.exp(-60), rel=1e-12)
    assert float(found[1]) == pytest.approx(math.exp(-59) - math.exp(-60), rel=1e-12)
    assert float(found[2]) == pytest.approx(1)


def test_rows_are_chosen_by_a_hash_of_each() -> None:
    index = torch.arange(200).repeat_interleave(9)
    rows = torch.stack([index, torch.arange(9).repeat(200)], dim=1)
    chosen = {count: choose_rows(rows, count, seed=0) for count in (1, 3, 9, 20)}
    for count, members in chosen.items():
        assert (torch.bincount(index[members]) == min(count, 9)).all()
    assert not (chosen[1] & ~chosen[3]).any()
    places = torch.bincount(rows[chosen[1], 1], minlength=9)
    assert (places > 5).all(), "each position is chosen about as often: 22 times"
    assert (choose_rows(rows, 3, seed=1) != chosen[3]).any()
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    assert torch.equal(choose_rows(rows[shuffled], 3, seed=0), chosen[3][shuffled])
    part = index >= 150
    assert torch.equal(choose_rows(rows[part], 3, seed=0), chosen[3][part])
