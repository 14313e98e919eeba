"""Erasing one item: every column against plain loops, on outputs made by hand."""

from typing import Any

import pytest
import torch

from attnlight.callbacks import SingleErasure
from attnlight.models.readout import SCORES
from tests.callbacks.handmade import columns_of, output_of, random_output, require_loops
from tests.turns import by_turns

SHAPES = [(1, 2), (1, 4), (3, 3)]  # heads and classes
OPTIONS = [{"gradient": "absolute"}, {"released": True}, {"target": "runner_up"}, {"target": 1}]


@pytest.mark.parametrize(
    ("options", "shape"), [*(({}, shape) for shape in SHAPES), *by_turns(zip(OPTIONS), SHAPES)]
)
def test_equals_plain_loops(options: dict[str, Any], shape: tuple[int, int]) -> None:
    found = require_loops(SingleErasure(seed=4, **options), random_output(*shape))
    assert 0 < found["flip_top_attention"].nanmean() < 1
    assert not torch.equal(found["flip_top_attention"], found["flip_top_gradient"])


def test_near_ties_are_chains_of_small_steps() -> None:
    """JS of equal words rises by steps around 1e-5: the third may tie with the second alone."""
    steps = torch.logspace(-6.5, -4.5, 60, dtype=torch.float64)[:, None]
    speaks = torch.cat([2.0 + steps * torch.arange(3), torch.zeros_like(steps)], dim=1)
    items = torch.stack([torch.zeros_like(speaks), speaks], dim=-1)[:, None]
    weights = torch.tensor([0.26, 0.26, 0.26, 0.22], dtype=torch.float64).expand(60, 1, 4)
    output = output_of(weights, items, torch.zeros(2, dtype=torch.float64))
    found = require_loops(SingleErasure(), output)
    assert set(found["outdone_expected_attention"].tolist()) == {1 / 3, 1.0}


def test_one_item_or_none_is_undefined_and_two_have_one_other() -> None:
    mask = torch.tensor([[True, False, False], [False, False, False], [True, False, True]])
    weights = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0.25, 0, 0.75]]).unsqueeze(1)
    items = torch.randn(3, 1, 3, 2, generator=torch.Generator().manual_seed(0))
    found = columns_of(
        SingleErasure(released=True), output_of(weights, items, torch.zeros(2), mask)
    )
    for name, column in found.items():
        assert column.isnan().tolist() == [True, True, False], name
    for measure in ("flip_other", "delta_weight", "delta_js"):
        for score in SCORES:
            drawn, expected = (found[f"{measure}_{kind}_{score}"] for kind in ("drawn", "expected"))
            assert drawn[2].item() == pytest.approx(expected[2].item(), abs=1e-7)
