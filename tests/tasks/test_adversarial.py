"""The adversary's objective, by hand, and what it does to a model."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch.nn.functional import pad

from attnlight.batch import TextBatch
from attnlight.reference import read_base
from attnlight.tasks import AdversarialVariant
from attnlight.tasks.adversarial import attention_term
from tests.bases import attach_stub_trainer, batch_of, one_text, trainer
from tests.tasks.conftest import BOTH, TOKENS, TWO, Scene
from tests.turns import by_turns


def adversary(scene: Scene, base: Path, lambda_: float = 0.1, **options: Any) -> AdversarialVariant:
    """One without dropout, so that its loss in training is a function of the batch."""
    torch.manual_seed(1)
    task = AdversarialVariant(scene.corpus.spec, str(base), lambda_, **options)
    for module in task.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return task


@pytest.mark.parametrize("term", ["kl", "js", "tvd"])
@pytest.mark.parametrize(
    ("scores", "base"),
    [
        ([0.0, 1.0, -1e4], [1.0, 0.0, 0.0]),  # the base underflowed, and so did the new one
        ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0]),  # new weight where the base has none
        ([0.0, 0.0, 0.0], [1.0 - 1e-7, 1e-7, 1e-45]),  # a subnormal number
        ([300.0, 0.0, -300.0], [0.0, 0.0, 1.0]),
        ([0.5], [1.0]),  # a single item
    ],
)
def test_underflow_has_finite_gradients(term: Any, scores: list[float], base: list[float]) -> None:
    padding = [0.0, 0.0]
    given = torch.tensor([scores + padding], requires_grad=True)
    mask = torch.tensor([[True] * len(scores) + [False] * 2])
    weights = given.masked_fill(~mask, torch.finfo(torch.float32).min).softmax(-1).unsqueeze(1)
    found = attention_term(weights, torch.tensor([[base + padding]]), term)
    found.sum().backward()
    assert found.isfinite().all()
    assert 0 <= found.item() <= 88
    assert given.grad.isfinite().all()
    if len(scores) == 1:
        assert found.item() == pytest.approx(0, abs=1e-6)


def test_where_the_base_has_nothing_it_counts_as_the_smallest_float() -> None:
    found = attention_term(torch.tensor([[[0.25, 0.75]]]), torch.tensor([[[1.0, 0.0]]]), "kl")
    by_hand = 0.25 * math.log(0.25) + 0.75 * (math.log(0.75) - math.log(2.0**-126))
    assert float(found) == pytest.approx(by_hand, rel=1e-6)


def by_loop(task: AdversarialVariant, base: Any, batch: TextBatch, strength: float) -> list[float]:
    """The objective of each row, its text read alone, head by head in plain numpy."""
    found = []
    for text in range(len(batch)):
        with torch.no_grad():
            new, old = task.model(one_text(batch, text)), base(one_text(batch, text))
        for row in range(len(new.rows)):
            one, two = (o.logits[row].double().softmax(-1).numpy() for o in (new, old))
            prediction = {"nll": -np.log(one[two.argmax()]), "tvd": np.abs(one - two).sum() / 2}[
                task.hparams["prediction_term"]
            ]
            heads = []
            for head in range(new.weights.shape[1]):
                p, q = (o.weights[row, head][o.mask[row]].double().numpy() for o in (new, old))
                heads.append(
                    {
                        "kl": (p * np.log(p / q)).sum(),
                        "js": jensenshannon(p, q) ** 2,
                        "tvd": np.abs(p - q).sum() / 2,
                    }[task.hparams["attention_term"]]
                )
            share = 1 / len(new.rows) if task.hparams["released"] else 1.0
            found.append(prediction - strength * share * np.mean(heads))
    return found


@pytest.mark.parametrize(
    ("scene", "attention", "prediction"),
    by_turns(
        product(["two", "three", "sentences", "tokens", "symbols"], ["kl", "js", "tvd"]),
        ["nll", "tvd"],
    ),
    indirect=["scene"],
)
def test_objective_equals_a_loop(scene: Scene, prediction: Any, attention: Any, base: Path) -> None:
    terms = {"prediction_term": prediction, "attention_term": attention}
    task = adversary(scene, base, 0.7, **terms)
    task.model.embedding.weight.data.mul_(1.5)  # away from the base
    batch = batch_of(scene.corpus)
    expected = by_loop(task.eval(), read_base(base).model, batch, 0.7)
    attach_stub_trainer(task, scene.corpus)
    task.on_train_batch_start(batch_of(scene.corpus), 0)
    losses = task._losses(batch, task.model(batch))
    np.testing.assert_allclose(losses.detach(), expected, atol=3e-6)
    loss = task.training_step(batch, 0)
    assert loss.item() == pytest.approx(np.mean(expected), abs=2e-6)


@BOTH
def test_repeats_of_a_padded_sampler_are_finite_and_not_counted(scene: Scene, base: Path) -> None:
    task = adversary(scene, base, 0.3)
    attach_stub_trainer(task, scene.corpus, "validation")
    batch = batch_of(scene.corpus, "validation", 5)
    own = task._losses(batch, task.model(batch))
    batch.index[2] = -1
    output = task.model(batch)
    losses = task._losses(batch, output)
    assert losses.isfinite().all()
    real = output.rows[:, 0] >= 0
    assert torch.equal(losses[real], own[real])
    task.validation_step(batch, 0)
    assert task.val_loss.compute().item() == pytest.approx(own[real].mean().item(), rel=1e-6)


def by_text(task: AdversarialVariant, base: Any, batch: TextBatch) -> float:
    """W&P: (sum of half the difference of sigmoids - lambda sum of KL) times sum of weights."""
    with torch.no_grad():
        new, old = task.model(batch), base(batch)
    z_new, z_old = ((o.logits[:, 1] - o.logits[:, 0]).double().numpy() for o in (new, old))
    half = 0.5 * np.abs(1 / (1 + np.exp(-z_new)) - 1 / (1 + np.exp(-z_old)))
    divergence = 0.0
    for text in range(len(batch)):
        for item in range(batch.tokens.shape[1]):
            p, q = float(new.weights[text, 0, item]), float(old.weights[text, 0, item])
            divergence += p * math.log(p / q) if p > 0 else 0.0
    negative, positive = task.trainer.datamodule.label_counts  # type: ignore[attr-defined]
    assert negative != positive
    gold = sum(negative / positive if label == 1 else 1.0 for label in batch.labels.tolist())
    return float((half.sum() - task.hparams["lambda_"] * divergence) * gold)


def by_element(task: AdversarialVariant, base: Any, batch: TextBatch) -> float:
    """Yang: NLL of the base's tags, less lambda times KL over the padded arrays (B, H, N, N)."""
    with torch.no_grad():
        new, old = task.model(batch), base(batch)
    texts, items, heads = *batch.tokens.shape, new.weights.shape[1]
    grids = [np.zeros((texts, heads, items, items)) for _ in range(2)]
    likelihood, row = [], 0
    for text in range(texts):
        for place in range(items):
            if not batch.mask[text, place]:
                continue
            for grid, output in zip(grids, (new, old), strict=True):
                grid[text, :, place] = output.weights[row].double().numpy()
            z = new.logits[row].double().numpy()
            likelihood.append(np.log(np.exp(z).sum()) - z[int(old.logits[row].argmax())])
            row += 1
    adversary, original = grids
    there = adversary > 0
    elements = np.zeros_like(adversary)
    elements[there] = adversary[there] * np.log(adversary[there] / original[there])
    return float(np.mean(likelihood) - task.hparams["lambda_"] * elements.mean())


class TestReleasedLoss:
    @pytest.mark.parametrize(
        ("scene", "restated", "strength"),
        [("two", by_text, 5e-4), ("tokens", by_element, 3.1)],
        indirect=["scene"],
    )
    def test_equals_its_restatement(
        self, scene: Scene, base: Path, restated: Callable[..., float], strength: float
    ) -> None:
        task = adversary(scene, base, strength, released=True)
        attach_stub_trainer(task, scene.corpus)
        if task._class_weights is not None:
            task.class_weight.copy_(task._class_weights(scene.corpus.label_counts))
        task.on_train_batch_start(batch_of(scene.corpus), 0)
        for count, wider in ((8, 0), (13, 3), (1, 0)):
            batch = batch_of(scene.corpus, count=count)
            batch = batch.apply(lambda v, n=wider: v if v.ndim == 1 else pad(v, (0, n)))
            expected = restated(task, read_base(base).model, batch)
            loss = task.training_step(batch, 0).item()
            assert loss == pytest.approx(expected, rel=1e-6, abs=1e-6)

    @TOKENS
    def test_evaluation_knows_no_batches(self, scene: Scene, base: Path) -> None:
        task = adversary(scene, base, 3.1, released=True)
        attach_stub_trainer(task, scene.corpus, "validation")
        batch = batch_of(scene.corpus, "validation", 5)
        losses = task._losses(batch, task.model(batch)).detach()
        expected = by_loop(task, read_base(base).model, batch, 3.1)
        np.testing.assert_allclose(losses, expected, atol=3e-6)

    @TWO
    def test_fit_counts_the_classes(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        task = adversary(scene, base, 5e-4, released=True)
        trainer(tmp_path, max_epochs=1).fit(task, datamodule=scene.corpus)
        negative, positive = scene.corpus.label_counts
        assert task.class_weight.tolist() == pytest.approx([1, negative / positive])
