"""Gradient methods against captum's, a row at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import Gradient, InputGradient, IntegratedGradients
from attnlight.batch import PAD, UNK, TextBatch
from attnlight.errors import InputError
from attnlight.functional import input_gradient, log_odds
from tests.attribution.scenes import SCENES, TOKENS, RowOdds, one_text, rows, scene, words

captum = pytest.importorskip("captum.attr")


def by_captum(
    name: str, explain: Callable[[RowOdds, Tensor, TextBatch], Tensor]
) -> tuple[Any, TextBatch, Tensor, Tensor]:
    """Model, batch, targets that are not all predicted, and captum's scores of tokens, summed."""
    model, batch = scene(name, padding=1)
    output = model(batch)
    classes = output.logits.shape[-1]
    target = torch.arange(len(output.rows)) % classes
    if batch.allowed_classes is not None:
        target = torch.where(batch.allowed_classes.gather(1, target[:, None])[:, 0], target, 1)
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    allowed = (output.logits > -5000).sum(-1)
    for row, (text, number) in enumerate(rows(batch, output)):
        if allowed[row] < 2:
            continue
        part = one_text(batch, text)
        odds = RowOdds(model, part, int(target[row]), number)
        with torch.backends.cudnn.flags(enabled=False):
            scores = explain(odds, model.embed(part).detach().requires_grad_(), part)[0].detach()
        scores = scores.masked_fill(~words(part)[0], 0.0)
        expected[row] = scores if scores.ndim == 1 else scores.sum(-1)
    return model, batch, target, expected


@pytest.mark.parametrize("name", SCENES)
def test_gradient(name: str) -> None:
    def explain(odds: RowOdds, embeddings: Tensor, _: TextBatch) -> Tensor:
        values: Tensor = captum.Saliency(odds).attribute(embeddings, abs=False)
        return values.norm(dim=-1)

    model, batch, target, expected = by_captum(name, explain)
    found = Gradient()(model, batch, model(batch), target)
    assert expected.max() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SCENES)
def test_input_gradient(name: str) -> None:
    def explain(odds: RowOdds, embeddings: Tensor, _: TextBatch) -> Tensor:
        values: Tensor = captum.InputXGradient(odds).attribute(embeddings)
        return values.sum(-1)

    model, batch, target, expected = by_captum(name, explain)
    found = InputGradient()(model, batch, model(batch), target)
    assert expected.min() < -0.01
    assert expected.max() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("baseline", "steps"), [("zero", 16), ("unk", 3), ("pad", 4)])
@pytest.mark.parametrize("name", SCENES)
def test_integrated_gradients(name: str, baseline: Any, steps: int) -> None:
    def explain(odds: RowOdds, embeddings: Tensor, part: TextBatch) -> Tensor:
        start = embeddings.detach().clone()
        for place in words(part).nonzero():
            entry = tuple(place.tolist())
            start[entry] = 0
            if baseline != "zero":
                word = odds.model.embedding.weight[{"unk": UNK, "pad": PAD}[baseline]]
                features = getattr(odds.model, "features", None)
                tables = [] if features is None else features.tables.values()
                parts = [word, *(table.weight[0] for table in tables)]  # 0: no feature
                start[entry] = torch.cat(parts).detach()
        method = captum.IntegratedGradients(odds)
        values: Tensor = method.attribute(
            embeddings, start, n_steps=steps, method="gausslegendre", internal_batch_size=1
        )
        return values.sum(-1)

    model, batch, target, expected = by_captum(name, explain)
    method = IntegratedGradients(baseline=baseline, steps=steps, max_steps=steps)
    found = method(model, batch, model(batch), target)
    assert expected.abs().max() > 0.1
    # captum keeps nodes and weights in single precision.
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SCENES)
def test_the_sums_of_integrated_gradients(name: str) -> None:
    """Each row sums to its difference within the tolerance, by the fewest doublings, or is flagged."""
    model, batch = scene(name)
    output = model(batch)
    target = output.logits.argmax(-1)
    method = IntegratedGradients(tolerance=1e-6, steps=4, max_steps=64)
    found, columns = method.explain(model, batch, output, target)
    start = model.embed(batch).detach().masked_fill(words(batch).unsqueeze(-1), 0.0)
    odds = [log_odds(model(batch, embeddings=x).logits, target) for x in (None, start)]
    difference = (odds[0] - odds[1]).detach()
    error = (found.sum(-1) - difference).abs() / difference.abs().clamp(min=0.1)
    choice = (output.logits > -5000).sum(-1) > 1
    torch.testing.assert_close(columns["completeness_error"][choice], error[choice])
    assert columns["completeness_error"][~choice].isnan().all()
    flagged = columns["incomplete"] == 1
    assert ((error <= 1e-6) | flagged)[choice].all()
    assert (columns["steps"][flagged] == 64).all()
    for steps in (4, 8, 16, 32, 64):  # as if all rows had been given this number of nodes
        rest = IntegratedGradients(tolerance=0.0, steps=steps, max_steps=steps)
        alone, single = rest.explain(model, batch, output, target)
        at = columns["steps"] == steps
        torch.testing.assert_close(found[at], alone[at], rtol=1e-9, atol=1e-12)
        enough = columns["steps"] > steps
        assert (single["completeness_error"][enough] > 1e-6).all()


def test_rows_that_are_not_complete_are_flagged() -> None:
    """A kinked path: the tagger's layer norm and ReLU at 2 nodes."""
    model, batch = scene("transformer")
    output = model(batch)
    target = output.logits.argmax(-1)
    method = IntegratedGradients(tolerance=1e-4, steps=1, max_steps=2)
    columns = method.explain(model, batch, output, target)[1]
    assert (columns["incomplete"] == 1).any()
    assert torch.equal(columns["incomplete"] == 1, columns["completeness_error"] > 1e-4)
    assert (columns["steps"] == 2).any()


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("name", ["bilstm", "han", *TOKENS])
def test_the_published_gradient_orders_items_alike(name: str, detached: bool) -> None:
    """For two classes, and for rows of tokens, up to a factor that is constant over a row's items."""
    model, batch = scene(name)
    output = model(batch)
    size = InputGradient(detached=detached)(model, batch, output, output.logits.argmax(-1)).abs()
    landed = input_gradient(model, batch, output, detached=detached)
    size, landed = (x / x.sum(-1, keepdim=True) for x in (size, landed))
    torch.testing.assert_close(size, landed, rtol=1e-8, atol=1e-12)


def test_detached_gradients_hold_attention_fixed() -> None:
    model, batch = scene("bilstm")
    output = model(batch)
    target = torch.zeros(len(batch), dtype=torch.long)
    embeddings = model.embed(batch).detach().requires_grad_()
    logits = model(batch, weights=output.weights.detach(), embeddings=embeddings).logits
    (gradient,) = torch.autograd.grad(-logits[:, 1].sum(), embeddings)
    expected = (gradient * embeddings).sum(-1).detach().masked_fill(~output.mask, 0.0)
    found = InputGradient(detached=True)(model, batch, output, target)
    torch.testing.assert_close(found, expected)
    free = InputGradient()(model, batch, output, target)
    assert (free - found).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": -1.0}, "tolerance is -1.0; it must be at least 0."),
        ({"steps": 0}, "steps is 0; it must be at least 1."),
        ({"steps": 64, "max_steps": 32}, "max_steps is 32; it must be at least 64."),
    ],
)
def test_options_of_integrated_gradients(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        IntegratedGradients(**options)
