"""The search of opaque readouts by gradients, against SLSQP and a plain search by Adam."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.functional import opaque_adversary, total_variation
from attnlight.models import PairClassifier
from attnlight.models.readout import readout_of
from tests.functional.adversaries import case, jensen_shannon
from tests.functional.adversary.opaque_decoders import (
    EPSILON,
    Decoders,
    adversaries,
    by_adam,
    decoders,
)


def check(model: Decoders, found: tuple[Tensor, Tensor]) -> None:
    adversary, js = found
    both = model.read(torch.stack([adversary, model.weights], dim=1).unsqueeze(1)).softmax(-1)
    assert (total_variation(both[:, 0], both[:, 1]) <= EPSILON * (1 + 1e-9)).all()
    assert (adversary >= 0).all()
    torch.testing.assert_close(adversary.sum(-1), torch.ones_like(js), rtol=1e-9, atol=0)
    torch.testing.assert_close(js, jensen_shannon(adversary, model.weights), rtol=1e-9, atol=1e-13)


def by_slsqp(model: Decoders, row: int, starts: int) -> float:
    """Largest JS that SLSQP reaches from random starts, with numerical gradients."""
    weights, projected, query, output, bias = (part[row].numpy() for part in model)

    def predict(attention: np.ndarray) -> np.ndarray:
        logits = np.tanh(attention @ projected + query) @ output + bias
        odds = np.exp(logits - logits.max())
        return odds / odds.sum()

    def js(attention: np.ndarray) -> float:
        return float(jensenshannon(attention.clip(0), weights) ** 2)

    def room(attention: np.ndarray) -> float:
        return EPSILON - float(np.abs(predict(attention) - original).sum() / 2)

    original, random, best = predict(weights), np.random.default_rng(row), 0.0
    for _ in range(starts):
        start = random.dirichlet(np.full(len(weights), 0.3))
        simplex = {"type": "eq", "fun": lambda attention: attention.sum() - 1}
        bounds, kept = [(0.0, 1.0)] * len(weights), {"type": "ineq", "fun": room}
        end = minimize(lambda a: -js(a), start, bounds=bounds, constraints=[simplex, kept]).x.clip(
            0
        )
        end = end / end.sum()
        # Back towards the original attention, where the prediction is preserved in the end.
        for share in np.linspace(0, 1, 201):
            attention = end + share * (weights - end)
            if room(attention) >= 0:
                best = max(best, js(attention))
                break
    return best


@pytest.mark.parametrize(
    ("items", "classes", "hidden"), [(12, 6, 16), (12, 2, 16), (37, 6, 128), (3, 5, 16)]
)
def test_reaches_what_64_starts_of_adam_reach(items: int, classes: int, hidden: int) -> None:
    model = decoders(6, items, classes, hidden)
    found, few = adversaries(model), adversaries(model, programs=False)
    check(model, found)
    assert (found[1] >= few[1] - 1e-9).all()
    gaps = by_adam(model) - found[1]
    assert gaps.mean() < 0.005
    assert gaps.max() < 0.03
    if classes == 6:
        assert (found[1] - few[1]).mean() > 0.3


def test_reaches_what_slsqp_reaches() -> None:
    model = decoders(4, 6, 4)
    found = adversaries(model)
    check(model, found)
    gaps = np.array([by_slsqp(model, row, 12) for row in range(4)]) - found[1].numpy()
    assert gaps.mean() < 0.005
    assert gaps.max() < 0.03


@pytest.mark.slow
def test_neither_batches_nor_padding_change_a_row() -> None:
    """Rows have random starts of their own, keyed by index and position."""
    model = decoders(32, 8, 3)
    together = adversaries(model, evaluations=3000)
    for size, items in ((1, 0), (7, 3)):
        for first in range(0, 32 if size > 1 else 4, size):
            rows = slice(first, first + size)
            found = adversaries(model, rows, items, evaluations=3000)
            torch.testing.assert_close(found[1], together[1][rows], rtol=0, atol=1e-6)
            torch.testing.assert_close(found[0][:, :8], together[0][rows], rtol=0, atol=1e-6)
    other = adversaries(model, evaluations=3000, seed=1)
    assert (other[1] - together[1]).abs().max() > 1e-6


@pytest.mark.parametrize("evaluations", [3, 50, 400, 2000])
@pytest.mark.parametrize("programs", [False, True])
def test_keeps_its_budget(evaluations: int, programs: bool) -> None:
    """One row at a time: forward passes of the readout, and two more for each with a gradient."""
    model, spent, all_js = decoders(5, 20, 4), 0, []

    def counted(given: Tensor, row: slice) -> Tensor:
        nonlocal spent
        logits = model.part(row).read(given)
        spent += given.shape[2]
        if logits.requires_grad:
            logits.register_hook(lambda _: count(2 * given.shape[2]))
        return logits

    def count(more: int) -> None:
        nonlocal spent
        spent += more

    for number in range(5):
        spent, row = 0, slice(number, number + 1)
        readout, mask = partial(counted, row=row), torch.ones(1, 20, dtype=torch.bool)
        _, js = opaque_adversary(
            model.weights[row], readout, mask, EPSILON, programs=programs, evaluations=evaluations
        )
        assert 0 < spent <= evaluations
        all_js.append(float(js))
    if (evaluations, programs) == (2000, True):
        assert spent > 300
        few = adversaries(model, programs=False)[1]
        assert np.mean(all_js) > few.mean() + 0.05


def test_takes_what_has_no_gradient() -> None:
    """Without gradients, and in inference mode, mixtures of few items are left."""
    model = decoders(4, 8, 3)
    few = adversaries(model, programs=False)
    arguments = (
        model.weights,
        torch.no_grad()(model.read),
        torch.ones(4, 8, dtype=torch.bool),
        EPSILON,
    )
    torch.testing.assert_close(opaque_adversary(*arguments)[1], few[1], rtol=0, atol=1e-12)
    with torch.inference_mode():
        torch.testing.assert_close(adversaries(model)[1], few[1], rtol=0, atol=1e-12)
    assert (adversaries(model)[1] > few[1] + 1e-3).any()


def test_heads_are_searched_alone() -> None:
    """Each head of a readout that adds up both is searched as if the other were part of the bias."""
    model, random = decoders(4, 6, 3), torch.Generator().manual_seed(0)
    other = torch.rand(4, 6, dtype=torch.float64, generator=random).log().softmax(-1)
    weights, mask = torch.stack([model.weights, other], dim=1), torch.ones(4, 6, dtype=torch.bool)

    def read(given: Tensor) -> Tensor:
        return model.read(given[:, :1]) + 0.5 * torch.sin(given[:, 1] @ model.projected[..., :3])

    adversary, js = opaque_adversary(weights, read, mask, EPSILON)
    assert adversary.shape == (4, 2, 6)
    for head in range(2):
        changed = weights.clone()
        changed[:, head] = adversary[:, head]
        before, after = (
            read(each.unsqueeze(2)).softmax(-1).squeeze(1) for each in (weights, changed)
        )
        assert (total_variation(after, before) <= EPSILON * (1 + 1e-9)).all()
        torch.testing.assert_close(js[:, head], jensen_shannon(changed, weights)[:, head])
    assert (js > 0.1).all(-1).any()


@pytest.mark.parametrize("kind", ["sharp", "zeros", "equal logits", "extreme", "few values"])
def test_odd_rows(kind: str) -> None:
    """Rows of one item, weights of 0 and logits of thousands; a row without numbers is NaN alone."""
    weights, logits, mask = case(kind, 8, 4, classes=5)

    def read(given: Tensor) -> Tensor:
        return torch.tanh(given.squeeze(1) @ logits) * 3

    few = opaque_adversary(weights, read, mask, EPSILON, programs=False)[1]
    adversary, js = opaque_adversary(weights, read, mask, EPSILON)
    assert (js >= few - 1e-9).all()
    assert (adversary[~mask] == 0).all()
    assert (js[mask.sum(-1) == 1] < 1e-12).all()
    both = read(torch.stack([adversary, weights], dim=1).unsqueeze(1)).softmax(-1)
    assert (total_variation(both[:, 0], both[:, 1]) <= EPSILON * (1 + 1e-9)).all()
    logits[6, 1, 0] = torch.nan
    broken = opaque_adversary(weights, read, mask, EPSILON)[1]
    assert broken.isnan().nonzero().flatten().tolist() == [6]
    torch.testing.assert_close(broken[broken.isfinite()], js[broken.isfinite()], rtol=0, atol=1e-9)


def pairs(classes: int) -> tuple[PairClassifier, TextBatch]:
    """A pair classifier in single precision, in doubt, and 6 texts of 4 to 14 words."""
    torch.manual_seed(0)
    model = PairClassifier(60, classes, encoder="average", embedding_size=16, hidden_size=24).eval()
    assert model.output is not None
    model.output.weight.data.mul_(6)
    tokens = torch.randint(4, 60, (6, 14))
    tokens *= torch.arange(14) < torch.arange(4, 16, 2)[:, None]
    query = torch.randint(4, 60, (6, 3))
    batch = TextBatch(torch.arange(6), tokens, tokens != 0, query=query, query_mask=query != 0)
    return model, batch


@pytest.mark.parametrize("inference", [False, True])
def test_of_a_pair_classifier(inference: bool) -> None:
    """What moves the prediction by epsilon is judged in the model's precision, without its gradients."""
    model, batch = pairs(4)
    with torch.inference_mode(inference), torch.no_grad():
        output = model(batch)
        readout = readout_of(batch, output, model)
        adversary, js, upper = readout.worst_case(EPSILON, seed=3)
        _, few, _ = readout.worst_case(EPSILON, programs=False)
        attentions = torch.stack([adversary, output.weights.double()], dim=2)
        after, before = readout.candidates(attentions).softmax(-1).unbind(1)
        assert (total_variation(after, before) <= EPSILON * (1 + 1e-5)).all()
        assert (js >= few - 1e-9).all()
        assert (js - few).mean() > 0.05
    assert upper.isnan().all()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_classes_that_are_not_allowed_do_not_count() -> None:
    model, batch = pairs(6)
    assert model.output is not None
    batch.allowed_classes = torch.tensor([True, False, True, True, False, False]).expand(6, -1)
    fewer = pairs(6)[0]
    fewer.load_state_dict(model.state_dict())
    assert fewer.output is not None
    with torch.no_grad():
        kept = readout_of(batch, model(batch), model).worst_case(EPSILON)
        fewer.output.weight = torch.nn.Parameter(model.output.weight[[0, 2, 3]])
        fewer.output.bias = torch.nn.Parameter(model.output.bias[[0, 2, 3]])
        batch.allowed_classes = None
        expected = readout_of(batch, fewer(batch), fewer).worst_case(EPSILON)
    torch.testing.assert_close(kept[1], expected[1], rtol=0, atol=1e-3)
    assert kept[1].amax() > 0.1
