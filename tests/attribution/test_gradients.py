"""Gradient methods against captum's, a row at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.attribution import Attribution, Gradient, InputGradient, IntegratedGradients
from attnlight.batch import PAD, UNK, AttentionModel, TextBatch
from attnlight.functional import log_odds
from tests.attribution.scenes import (
    SCENES,
    RowOdds,
    evaluated,
    one_text,
    rows,
    scene,
    targets,
    words,
)

captum = pytest.importorskip("captum.attr")
# Scores of tokens of one row, from its log odds, embeddings and text.
Explain = Callable[[RowOdds, Tensor, TextBatch], Tensor]


def gradient(odds: RowOdds, embeddings: Tensor, _: TextBatch) -> Tensor:
    values: Tensor = captum.Saliency(odds).attribute(embeddings, abs=False)
    return values.norm(dim=-1)


def input_gradient(odds: RowOdds, embeddings: Tensor, _: TextBatch) -> Tensor:
    values: Tensor = captum.InputXGradient(odds).attribute(embeddings)
    return values.sum(-1)


def integrated_gradients(
    baseline: str, steps: int, odds: RowOdds, embeddings: Tensor, part: TextBatch
) -> Tensor:
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
    values: Tensor = captum.IntegratedGradients(odds).attribute(
        embeddings, start, n_steps=steps, method="gausslegendre", internal_batch_size=1
    )
    return values.sum(-1)


def integrated(baseline: Any, steps: int) -> tuple[Attribution, Explain, float]:
    """The method and captum's, which keeps nodes and weights in single precision."""
    method = IntegratedGradients(baseline=baseline, steps=steps, max_steps=steps)
    return method, partial(integrated_gradients, baseline, steps), 1e-6


CASES: dict[str, tuple[Attribution, Explain, float]] = {
    "gradient": (Gradient(), gradient, 1e-9),
    "input_gradient": (InputGradient(), input_gradient, 1e-9),
    "zero": integrated("zero", 4),
    "unk": integrated("unk", 3),
    "pad": integrated("pad", 2),
}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case, name)
        for place, name in enumerate(SCENES)
        for case in CASES
        if case != ("unk", "pad")[place % 2]  # which differ in a token alone
    ],
)
def test_equals_captum(case: str, name: str) -> None:
    """For targets that are not all predicted; of boundary tokens and rows without a choice 0."""
    method, explain, tolerance = CASES[case]
    model, batch, output, choice = evaluated(name, padding=1)
    target = targets(output)[0]
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    for row, (text, number) in enumerate(rows(batch, output)):
        if choice[row]:
            part = one_text(batch, text)
            odds = RowOdds(model, part, int(target[row]), number)
            with torch.backends.cudnn.flags(enabled=False):
                scores = explain(odds, model.embed(part).detach().requires_grad_(), part)[0]
            scores = scores.detach().masked_fill(~words(part)[0], 0.0)
            expected[row] = scores if scores.ndim == 1 else scores.sum(-1)
    assert expected.max() > 0.1
    assert (expected.min() < -0.01) == method.signed
    found = method(model, batch, output, target)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SCENES)
def test_the_sums_of_integrated_gradients(name: str) -> None:
    """Each row sums to its difference within the tolerance, halved where it is furthest off, or is flagged."""
    model, batch, output, choice = evaluated(name)
    target = output.logits.argmax(-1)
    method = IntegratedGradients(tolerance=1e-6, steps=4, max_steps=16)
    found, columns = method.explain(model, batch, output, target)
    start = model.embed(batch).detach().masked_fill(words(batch).unsqueeze(-1), 0.0)
    odds = [log_odds(model(batch, embeddings=x).logits, target) for x in (None, start)]
    difference = (odds[0] - odds[1]).detach()
    error = (found.sum(-1) - difference).abs() / difference.abs().clamp(min=0.1)
    torch.testing.assert_close(columns["completeness_error"][choice], error[choice])
    assert columns["completeness_error"][~choice].isnan().all()
    flagged = columns["incomplete"] == 1
    assert ((error <= 1e-6) | flagged)[choice].all()
    assert (columns["steps"][flagged] == 16).all()
    for row in {len(found) // 2, len(found) - 1} & set(choice.nonzero().flatten().tolist()):
        text, number = rows(batch, output)[row]
        own, part = output.rows[:, 0] == output.rows[row, 0], one_text(batch, text)
        scores, steps = by_halving(model, part, target[own], number, start[[text]])
        torch.testing.assert_close(found[row], scores.to(found), rtol=1e-8, atol=1e-11)
        assert columns["steps"][row] == steps


def by_halving(
    model: AttentionModel, batch: TextBatch, target: Tensor, row: int, start: Tensor
) -> tuple[Tensor, int]:
    """Scores of a row and its number of nodes, by a loop over parts of the line and over nodes."""
    way = model.embed(batch).detach() - start
    places, weights = np.polynomial.legendre.leggauss(4)

    def odds(embeddings: Tensor) -> Tensor:
        return log_odds(model(batch, embeddings=embeddings).logits, target)[row]

    def part(low: float, high: float) -> tuple[Tensor, float]:
        middle, half = (low + high) / 2, (high - low) / 2
        total = torch.zeros(())
        for place, weight in zip(places, weights, strict=True):
            at = (start + way * (middle + half * place)).requires_grad_()
            (gradient,) = torch.autograd.grad(odds(at), at)
            total = total + half * weight * (gradient * way).sum(-1).sum(0)
        change = odds(start + way * high) - odds(start + way * low)
        return total if total.ndim == 1 else total.sum(-1), float((total.sum() - change).detach())

    parts = {(0.0, 1.0): part(0.0, 1.0)}
    scale = max(float((odds(start + way) - odds(start)).abs()), 0.1)
    while abs(sum(off for _, off in parts.values())) > 1e-6 * scale and 4 * len(parts) < 16:
        off = {ends: abs(error) for ends, (_, error) in parts.items()}
        worst = sorted((ends for ends in off if off[ends] >= 1e-6 * scale / len(off)), key=off.get)
        for low, high in worst[::-1][: 4 - len(off)]:
            del parts[low, high]
            middle = (low + high) / 2
            parts |= {(low, middle): part(low, middle), (middle, high): part(middle, high)}
    return sum((scores for scores, _ in parts.values()), torch.zeros(())), 4 * len(parts)


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
