"""Leave-one-out of any model, from its shortened texts."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional._cpu import blocks
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.probing.leave_one_out import (
    deletion_effects,
    leave_one_out,
    left_out_logits,
    prediction_change,
    reencode,
)
from tests.attribution.scenes import scene
from tests.probing.oracles import moved


@pytest.mark.parametrize("name", ["two heads", "opaque heads"])
@torch.no_grad()
def test_outside_model_equals_a_loop(name: str) -> None:
    model, batch = scene(name)
    output = model(batch)
    found, expected = leave_one_out(model, batch, output), moved(model, batch, output, False)
    expected = expected.masked_fill(~output.mask, 0.0)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert found.nan_to_num().max() > 0.1


@pytest.mark.parametrize("budget", [1, 20, 10_000])
@torch.no_grad()
def test_budget_bounds_what_is_read_and_changes_nothing(budget: int) -> None:
    model, batch = scene("two heads")
    output, read = model(batch), list[TextBatch]()
    expected = left_out_logits(model, batch, output)
    model.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    found = reencode(model, batch, output, budget)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True)
    lengths = batch.mask.sum(-1)
    assert sum(map(len, read)) == int(lengths[lengths > 1].sum())
    for part in read:
        assert len(part) == 1 or part.tokens.numel() <= budget
        assert part.mask.any(0).all(), "padding that no text of the batch needs"


@pytest.mark.parametrize("name", ["two heads", "bilstm", "cnn", "average", "han", "affine pair"])
@torch.no_grad()
def test_only_some_items(name: str) -> None:
    """Those of all items, and fewer texts are read where each is read again."""
    model, batch = scene(name)
    output, read = model(batch), list[int]()
    only = torch.rand(output.mask.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    every = left_out_logits(model, batch, output)
    model.register_forward_pre_hook(lambda _, given: read.append(len(given[0])))
    found = left_out_logits(model, batch, output, None, only)
    expected = every.masked_fill(~only.unsqueeze(-1), torch.nan)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9, equal_nan=True)
    assert 0 < int((~found.isnan()).any(-1).sum()) < int((~every.isnan()).any(-1).sum())
    several = output.mask.sum(-1, keepdim=True) > 1
    assert not read or sum(read) == int((output.mask & only & several).sum())


def test_change_keeps_its_digits_near_certainty() -> None:
    moved = prediction_change(torch.tensor([[[0.0, 61.0], [60.0, 0.0]]]), torch.tensor([[0.0, 60]]))
    lost = math.exp(-60) - math.exp(-61)  # up to a factor 1 - exp(-60)
    assert float(moved[0, 0]) == pytest.approx(lost, rel=1e-12)
    assert float(moved[0, 1]) == pytest.approx(1)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_change_is_half_the_sum_of_differences(classes: int) -> None:
    random = torch.Generator().manual_seed(classes)
    logits = torch.randn(5, 4, classes, dtype=torch.float64, generator=random)
    own = torch.randn(5, classes, dtype=torch.float64, generator=random)
    expected = (logits.softmax(-1) - own.softmax(-1).unsqueeze(1)).abs().sum(-1) / 2
    torch.testing.assert_close(prediction_change(logits, own), expected, rtol=1e-12, atol=1e-15)
    logits[2, 1, 0], own[3, 1] = torch.nan, torch.inf
    moved = prediction_change(logits, own)
    assert moved.isnan().nonzero().tolist() == [[2, 1], [3, 0], [3, 1], [3, 2], [3, 3]]


def test_rows_that_are_not_texts_are_refused() -> None:
    model, batch = scene("two heads")
    output = model(batch)
    with pytest.raises(InputError, match=r"one row per text.* this one gave 24 rows for 12 texts"):
        leave_one_out(model, batch, replace(output, rows=output.rows.repeat(2, 1)))


@given(st.lists(st.integers(0, 30)), st.integers(0, 60))
def test_blocks_cover_all_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    lengths.sort()
    found = list(blocks(lengths, budget))
    assert [n for block in found for n in lengths[block]] == lengths
    for block in found:
        part = lengths[block]
        assert part
        assert len(part) == 1 or len(part) * part[-1] <= budget


def test_blocks_hold_like_lengths() -> None:
    found = [(block.start, block.stop) for block in blocks([1, 3, 4, 5, 90, 100], budget=16)]
    assert found == [(0, 3), (3, 4), (4, 5), (5, 6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_what_only_rounding_moves_is_unmoved_and_no_less(dtype: torch.dtype) -> None:
    """A model that reads its query alone has no effects to rank; a thousandth of a logit is one."""
    model, batch = scene("affine pair")
    model.to(dtype).decoder.weight.zero_()
    output = model(batch)
    target, several = output.logits.argmax(-1), output.mask.sum(-1) > 1
    assert (left_out_logits(model, batch, output)[several] != output.logits[several, None]).any()
    for found in (
        leave_one_out(model, batch, output),
        deletion_effects(model, batch, output, target),
    ):
        assert not found[output.mask & several[:, None]].any()
        assert found[output.mask & ~several[:, None]].isnan().all()
    model.decoder.weight[0] = 1e-3
    odds = [
        log_odds(x, target) for x in (model(batch).logits, left_out_logits(model, batch, output))
    ]
    expected, found = odds[0][:, None] - odds[1], deletion_effects(model, batch, output, target)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, equal_nan=True)
    assert 1e-5 < found.nan_to_num().abs().max() < 1e-2
