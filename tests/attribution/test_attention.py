"""Methods that use attention, by automatic differentiation, loops over items and by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import (
    Attention,
    AttentionContribution,
    AttentionValueNorm,
    GradientXAttention,
    Random,
)
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import log_odds
from tests.attribution.scenes import SCENES, evaluated, rows, scene, targets
from tests.models import test_classifier as flat

Oracle = Callable[[Any, TextBatch, AttentionOutput, Tensor], Tensor]


def mean_weights(model: Any, batch: TextBatch, output: AttentionOutput, target: Tensor) -> Tensor:
    return output.weights.mean(1)


def by_differences(model: Any, batch: TextBatch, output: AttentionOutput, target: Tensor) -> Tensor:
    """Central differences of the readout in each weight; the weights are free variables."""
    expected, step = torch.zeros(output.mask.shape, dtype=torch.float64), 1e-6
    for item in range(output.mask.shape[1]):
        for head in range(output.weights.shape[1]):
            nudge = torch.zeros_like(output.weights)
            nudge[:, head, item] = step
            pair = torch.stack([output.weights + nudge, output.weights - nudge], dim=2)
            high, low = log_odds(model.readout(output, pair), target).detach().unbind(1)
            expected[:, item] += output.weights[:, head, item] * (high - low) / (2 * step)
    return expected


def by_item_logits(model: Any, batch: TextBatch, output: AttentionOutput, target: Tensor) -> Tensor:
    """Item by item from weights, item logits and bias."""
    classes, heads = output.logits.shape[1], output.weights.shape[1]
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    biases = output.bias.expand_as(output.logits)
    for row, logits in enumerate(output.logits):
        rivals = [c for c in range(classes) if c != target[row]]
        q = logits[rivals].softmax(-1)
        for item in output.mask[row].nonzero().flatten().tolist():
            for head in range(heads):
                parts = output.item_logits[row, head, item] - biases[row] / heads
                lead = parts[target[row]] - (q * parts[rivals]).sum()
                expected[row, item] += output.weights[row, head, item] * lead
    return expected


def by_norms(model: Any, batch: TextBatch, output: AttentionOutput, target: Tensor) -> Tensor:
    """The norm of what one item adds, by differences of what the readout computes first."""
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    for row, (text, _) in enumerate(rows(batch, output)):
        for item in output.mask[row].nonzero().flatten().tolist():
            weights = output.weights[row, :, item]
            if output.item_logits is not None:
                bias = output.bias.expand_as(output.logits)[row] / len(weights)
                added = (weights[:, None] * (output.item_logits[row, :, item] - bias)).sum(0)
                added = added - added.mean()
            elif "values" in output.memory:
                values = output.memory["values"][text, :, item]
                added = model.decoder.after.output((weights[:, None] * values).flatten())
            else:
                added = weights[0] * (model.decoder.weight @ output.states[text, item])
            expected[row, item] = added.norm()
    return expected


ORACLES: dict[Any, tuple[Oracle, float]] = {
    Attention: (mean_weights, 0.0),
    GradientXAttention: (by_differences, 1e-6),
    AttentionContribution: (by_item_logits, 1e-10),
    AttentionValueNorm: (by_norms, 1e-8),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("kind", ORACLES)
def test_equals_its_definition(kind: Any, name: str) -> None:
    model, batch, output, choice = evaluated(name)
    target, (oracle, tolerance) = targets(output)[0], ORACLES[kind]
    if kind is AttentionContribution and name.endswith(("pair", "transformer")):
        with pytest.raises(InputError, match="attention_contribution needs logits that are affine"):
            kind()(model, batch, output, target)
        return
    expected = oracle(model, batch, output, target)
    expected = expected.masked_fill(~output.mask | ~choice[:, None], 0.0)
    assert expected.abs().max() > 0.1
    found = kind()(model, batch, output, target)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    if kind is AttentionContribution:
        gradient = GradientXAttention()(model, batch, output, target)
        torch.testing.assert_close(found, gradient, rtol=1e-9, atol=1e-12)
        if output.logits.shape[1] == 2:
            biases = output.bias.expand_as(output.logits)
            whole = log_odds(output.logits, target) - log_odds(biases, target)
            torch.testing.assert_close(found.sum(-1), whole)


def test_norms_of_an_opaque_readout_from_outside_are_refused() -> None:
    outside, batch = scene("opaque heads")
    output = outside(batch)
    with pytest.raises(InputError, match="and TwoHeads has neither"):
        AttentionValueNorm()(outside, batch, output, output.logits.argmax(-1))


def test_random_scores() -> None:
    """Uniform over orders, the same in any batch, and another order for another row or seed."""
    model = flat.model("average", "uniform")
    texts = [[4, 5, 6]] * 600
    batch = flat.collate(texts, padding=2)
    output = model(batch)
    target = torch.zeros(len(texts), dtype=torch.long)
    found = Random()(model, batch, output, target)
    assert (found[:, 3:] == 0).all()
    thirds = 1 - torch.tensor([2.0, 1.0, 0.0]).double() / 3
    assert torch.equal(found[:, :3].sort(-1).values, thirds.expand(600, 3))
    counts = torch.unique(found[:, :3], dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 100).abs() < 4 * (600 * 5 / 36) ** 0.5).all()
    shorter = flat.collate([[2, *text, 3] for text in texts[:5]])
    again = Random()(model, shorter, model(shorter), target[:5])
    assert torch.equal(again[:, 1:4], found[:5, :3])
    other = Random(seed=1)(model, batch, output, target)
    assert 0 < (other == found).all(-1).sum() < 200


def test_tokens_of_a_sentence_get_different_random_orders() -> None:
    model, batch = scene("recurrent")
    output = model(batch)
    found = Random()(model, batch, output, output.logits.argmax(-1))
    assert len(torch.unique(found[-9:], dim=0)) > 4
