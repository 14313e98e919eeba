"""Erasing from the top of a ranking: every column against plain loops."""

from typing import Any

import pytest
import torch

from attnlight.callbacks import DecisionFlip
from attnlight.errors import InputError
from attnlight.models.readout import SCORES
from tests.callbacks.handmade import columns_of, output_of, random_output, require_loops
from tests.turns import by_turns

SHAPES = [(1, 2), (1, 4), (3, 3)]  # heads and classes
OPTIONS = [{"emptied": "uniform"}, {"target": "runner_up"}, {"gradient": "absolute"}, {"target": 0}]


@pytest.mark.parametrize(
    ("options", "shape"),
    [*(({}, shape) for shape in SHAPES), *by_turns(zip(OPTIONS), SHAPES)],
    ids=str,
)
def test_rankings_equal_plain_loops(options: dict[str, Any], shape: tuple[int, int]) -> None:
    heads, classes = shape
    test, output = DecisionFlip(seed=4, **options), random_output(heads, classes)
    output = output.select(*[torch.arange(60) < (40 if heads == 1 else 25)] * 2)
    found = require_loops(test, output)
    assert found["length"].tolist() == output.mask.sum(-1).tolist()
    for name in (*SCORES, "random"):
        assert 0 < found[f"never_flips_{name}"].mean() < 1
        assert found[f"removed_count_{name}"].nan_to_num().unique().numel() > 4
        if heads == 1:
            assert not (found[f"excess_{name}"] < 0).any()
            # Whatever a ranking flips, the minimum does.
            flips = found[f"never_flips_{name}"] < 1
            assert not (flips & (found["never_flips_minimal"] == 1)).any()
    partly = found["never_flips_random"]
    assert ((partly > 0) & (partly < 1)).any()
    minimum = found["minimal_count"] / found["length"]
    torch.testing.assert_close(found["removed_fraction_minimal"], minimum, equal_nan=True)
    assert torch.equal(found["never_flips_minimal"] == 1, minimum.isnan())
    mass = found["removed_mass_minimal"]
    assert ((mass > 0) | mass.isnan()).all()
    assert heads > 1 or ((mass >= 1 - 1e-12) == (found["needs_all_minimal"] == 1)).all()


def test_only_when_nothing_is_left() -> None:
    """Three words: one for class 1 holds nearly all, one for class 1 nothing, one is for class 0."""
    weights = torch.tensor([[[0.75, 0.0, 0.25]]])
    items = torch.tensor([[[[0.0, 4.0], [0.0, 9.0], [0.0, 1.0]]]])
    found = columns_of(DecisionFlip(draws=3), output_of(weights, items, torch.tensor([1.0, 0.0])))
    assert found["removed_count_attention"].item() == 2
    assert found["removed_fraction_attention"].item() == pytest.approx(2 / 3)
    assert found["minimal_count"].item() == 2
    for name in (*SCORES, "random", "random_first", "minimal"):
        assert found[f"needs_all_{name}"].item() == 1
        assert found[f"removed_mass_{name}"].item() == 1
        assert found[f"never_flips_{name}"].item() == 0
    # The gradient also erases the word without weight, which is of no use.
    assert found["removed_count_gradient"].item() == 3
    assert found["excess_gradient"].item() == 1


def test_ties_go_from_left_to_right_whatever_the_rounding() -> None:
    """Equal words must be erased in the same order whatever their last digits."""
    noise = 1e-7 * torch.rand(50, 1, 4, dtype=torch.float64)
    weights = torch.full((50, 1, 4), 0.25, dtype=torch.float64) + noise
    items = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.5, 0.0]], dtype=torch.float64)
    output = output_of(
        weights / weights.sum(-1, keepdim=True), items.expand(50, 1, 4, 2), torch.zeros(2).double()
    )
    found = columns_of(DecisionFlip(), output)
    assert (found["removed_count_attention"] == 2).all()
    assert (found["minimal_count"] == 2).all()


def test_one_item_and_none() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    weights = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]])
    items = torch.tensor([[0.0, 1.0], [0.0, 1.0]]).expand(2, 1, 2, 2)
    found = columns_of(DecisionFlip(), output_of(weights, items, torch.tensor([1.0, 0.0]), mask))
    assert found["length"].tolist() == [1, 0]
    for name in (*SCORES, "random", "minimal"):
        assert found[f"removed_fraction_{name}"][0] == found[f"needs_all_{name}"][0] == 1
        assert found[f"never_flips_{name}"][1].isnan()


def test_uniform_attention_is_for_one_head() -> None:
    with pytest.raises(InputError, match="one attention head; this one has 2"):
        columns_of(DecisionFlip(emptied="uniform"), random_output(heads=2))
