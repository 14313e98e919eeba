"""Methods that use attention, by automatic differentiation, loops over items and by hand."""

from __future__ import annotations

import pytest
import torch

from attnlight.attribution import (
    Attention,
    AttentionContribution,
    AttentionValueNorm,
    GradientXAttention,
    Random,
)
from attnlight.errors import InputError
from attnlight.functional import log_odds
from tests.attribution.scenes import SCENES, rows, scene
from tests.models import test_classifier as flat
from tests.outside import Texts, TwoHeads, collate

AFFINE = [name for name in SCENES if name not in ("pair", "transformer")]


@pytest.mark.parametrize("name", SCENES)
def test_attention(name: str) -> None:
    model, batch = scene(name)
    output = model(batch)
    found = Attention()(model, batch, output, output.logits.argmax(-1))
    choice = (output.logits > -5000).sum(-1) > 1
    assert torch.equal(found[choice], output.weights.detach().mean(1)[choice])
    assert (found[~choice] == 0).all()


@pytest.mark.parametrize("name", SCENES)
def test_gradient_x_attention(name: str) -> None:
    """Central differences of the readout in each weight; the weights are free variables."""
    model, batch = scene(name)
    output = model(batch)
    output = output.apply(torch.Tensor.detach)
    target, step = output.logits.topk(2).indices[:, 1], 1e-6
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    for item in range(output.mask.shape[1]):
        for head in range(output.weights.shape[1]):
            nudge = torch.zeros_like(output.weights)
            nudge[:, head, item] = step
            pair = torch.stack([output.weights + nudge, output.weights - nudge], dim=2)
            high, low = log_odds(model.readout(output, pair), target).detach().unbind(1)
            expected[:, item] += output.weights[:, head, item] * (high - low) / (2 * step)
    choice = (output.logits > -5000).sum(-1, keepdim=True) > 1
    expected = expected.masked_fill(~output.mask | ~choice, 0.0)
    found = GradientXAttention()(model, batch, output, target)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", AFFINE)
def test_attention_contribution(name: str) -> None:
    """Item by item from weights, item logits and bias; with their sum for two classes."""
    model, batch = scene(name)
    output = model(batch)
    output = output.apply(torch.Tensor.detach)
    classes, heads = output.logits.shape[1], output.weights.shape[1]
    target = torch.arange(len(output.rows)) % classes
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
    found = AttentionContribution()(model, batch, output, target)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        found, GradientXAttention()(model, batch, output, target), rtol=1e-9, atol=1e-12
    )
    if classes == 2:
        whole = log_odds(output.logits, target) - log_odds(biases, target)
        torch.testing.assert_close(found.sum(-1), whole)


@pytest.mark.parametrize("name", SCENES)
def test_attention_value_norm(name: str) -> None:
    """The norm of what one item adds, by differences of what the readout computes first."""
    model, batch = scene(name)
    output = model(batch).apply(torch.Tensor.detach)
    choice = (output.logits > -5000).sum(-1) > 1
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    heads = output.weights.shape[1]
    for row, (text, _) in enumerate(rows(batch, output)):
        for item in output.mask[row].nonzero().flatten().tolist():
            weights = output.weights[row, :, item]
            if name == "pair":
                added = weights[0] * (model.decoder.weight @ output.states[text, item])
            elif name == "transformer":
                values = output.memory["values"][text, :, item]
                added = model.decoder.after.output((weights[:, None] * values).flatten())
            else:
                bias = output.bias.expand_as(output.logits)[row] / heads
                added = (weights[:, None] * (output.item_logits[row, :, item] - bias)).sum(0)
                added = added - added.mean()
            expected[row, item] = added.norm() * choice[row]
    found = AttentionValueNorm()(model, batch, output, output.logits.argmax(-1))
    assert expected.max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_refusals() -> None:
    model, batch = scene("pair")
    output = model(batch)
    target = output.logits.argmax(-1)
    with pytest.raises(InputError, match="attention_contribution needs logits that are affine"):
        AttentionContribution()(model, batch, output, target)
    outside, texts = TwoHeads(affine=False), Texts()
    batch = collate([texts[i] for i in range(4)])
    output = outside(batch)
    with pytest.raises(InputError, match="and TwoHeads has neither"):
        AttentionValueNorm()(outside, batch, output, output.logits.argmax(-1))  # type: ignore[arg-type]


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
