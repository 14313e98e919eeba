"""Classes that are not allowed: results are those of the same rows without these classes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attnlight.batch import NOT_ALLOWED, AttentionOutput
from attnlight.functional import worst_case_attention
from attnlight.functional.masking import allowed_classes
from tests.callbacks.handmade import output_of, random_output

CLASSES = 6
# The classes of rows 0, 5, ...; of rows 1, 6, ...; and so on.
SETS = ([4], [0, 3], [1, 5], [0, 2, 5], list(range(CLASSES)))
# A class of probability 0 that is allowed, as the rival of a row's only class.
IMPOSSIBLE = -1000.0
EPSILON = 0.02


def allowed_of(rows: int) -> Tensor:
    """The classes that each row allows, (R, C) bool."""
    allowed = torch.zeros(rows, CLASSES, dtype=torch.bool)
    for number, classes in enumerate(SETS):
        allowed[number :: len(SETS), classes] = True
    return allowed


def restricted(output: AttentionOutput) -> AttentionOutput:
    """An output each of whose rows allows the classes of its set only."""
    allowed = allowed_of(len(output.rows))
    items = output.item_logits.masked_fill(
        ~allowed[:, None, None], NOT_ALLOWED / output.item_logits.shape[1]
    )
    bias = output.bias.masked_fill(~allowed, NOT_ALLOWED)
    logits = output_of(output.weights, items, bias, output.mask).logits
    return replace(output, item_logits=items, bias=bias, logits=logits)


def chosen(values: Tensor, classes: list[int], heads: int = 1) -> Tensor:
    """The logits (..., C) of some classes; of one, a second one that has no probability."""
    values = values[..., classes]
    impossible = torch.full_like(values[..., :1], IMPOSSIBLE / heads)
    return values if len(classes) > 1 else torch.cat([values, impossible], dim=-1)


def removed(output: AttentionOutput) -> Iterator[AttentionOutput]:
    """For each set the output with its classes alone."""
    heads = output.weights.shape[1]
    for classes in SETS:
        items = chosen(output.item_logits, classes, heads)
        bias, logits = chosen(output.bias, classes), chosen(output.logits, classes)
        yield replace(output, item_logits=items, bias=bias, logits=logits)


def test_two_allowed_classes_have_an_exact_worst_case() -> None:
    masked = restricted(random_output(1, CLASSES, rows=60))
    _, js, upper = worst_case_attention(masked.weights, masked.item_logits, masked.mask, EPSILON)
    for number, classes in enumerate(SETS[:3]):
        assert torch.equal(js[number :: len(SETS)], upper[number :: len(SETS)]), classes
    assert (js[3 :: len(SETS)] < upper[3 :: len(SETS)]).any()  # three classes: bounds only


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_other_classes_have_no_probability_in_any_precision(dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, NOT_ALLOWED, -40.0], [NOT_ALLOWED, -300.0, NOT_ALLOWED]])
    logits = logits.to(dtype)
    expected = torch.tensor([[True, False, True], [False, True, False]])
    assert torch.equal(allowed_classes(logits), expected)
    probabilities = logits.softmax(-1)
    assert (probabilities[~expected] == 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, dtype=dtype))


def test_weighted_means_of_logits_stay_not_allowed() -> None:
    """Attention whose sum is off by rounding, over many items and heads, in single precision."""
    weights = torch.randn(50, 7, 3000, generator=torch.Generator().manual_seed(0)).softmax(-1)
    items = torch.full((50, 7, 3000, 2), NOT_ALLOWED / 7)
    items[..., 1] = -3.0
    logits = (weights.unsqueeze(2) @ items).squeeze(2).sum(1)
    assert (logits[:, 0] != NOT_ALLOWED).any()
    assert torch.equal(allowed_classes(logits), torch.tensor([False, True]).expand(50, 2))


def test_logits_that_are_not_numbers_are_of_allowed_classes() -> None:
    """They are reported as such elsewhere, not left out."""
    assert allowed_classes(torch.tensor([torch.nan, torch.inf, -torch.inf])).all()
