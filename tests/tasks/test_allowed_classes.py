"""Losses and metrics of texts that may not be answered with every class."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from attnlight.batch import NOT_ALLOWED, TextBatch
from attnlight.problems import Classification
from attnlight.tasks.adversarial import prediction_term
from tests.bases import spec
from tests.callbacks.handmade import batch_of, random_output
from tests.functional.test_allowed_classes import CLASSES, SETS, allowed_of, chosen

ROWS = 40
LOGITS, BASE = 3 * torch.randn(2, ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([SETS[row % len(SETS)][-1] for row in range(ROWS)])
# From logits (R, C) and the classes that they are of, None if of all, to losses (R,).
Loss = Callable[[Tensor, list[int] | None], Tensor]


def masked(logits: Tensor) -> Tensor:
    return logits.masked_fill(~allowed_of(ROWS), NOT_ALLOWED)


def batch(labels: Tensor) -> TextBatch:
    return replace(batch_of(random_output(rows=ROWS)), labels=labels)


def likelihood(logits: Tensor, classes: list[int] | None) -> Tensor:
    """Cross-entropy of the labels, each class with its weight."""
    weight, labels = torch.arange(1.0, CLASSES + 1), LABELS
    if classes is not None:
        labels = labels.clone().apply_(lambda label: max(0, [*classes, label].index(label)))
        labels = labels.clamp(max=logits.shape[1] - 1)  # of rows that are not compared
        weight = torch.cat([weight[classes], torch.ones(1)])[: logits.shape[1]]
    output = replace(random_output(rows=ROWS), logits=logits)
    return Classification(spec(9, logits.shape[1])).losses(output, batch(labels), weight)


def imitation(term: Literal["nll", "tvd"]) -> Loss:
    def loss(logits: Tensor, classes: list[int] | None) -> Tensor:
        base = masked(BASE) if classes is None else chosen(BASE, classes)
        return prediction_term(logits, base, term)

    return loss


@pytest.mark.parametrize("loss", [likelihood, imitation("nll"), imitation("tvd")])
def test_losses_and_gradients_are_those_without_the_other_classes(loss: Loss) -> None:
    logits = masked(LOGITS).requires_grad_()
    losses = loss(logits, None)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert (gradient[~allowed_of(ROWS)] == 0).all()
    for number, classes in enumerate(SETS):
        rows = torch.arange(number, ROWS, len(SETS))
        alone = chosen(LOGITS, classes).requires_grad_()
        expected = loss(alone, classes)
        (slope,) = torch.autograd.grad(expected.sum(), alone)
        torch.testing.assert_close(losses[rows], expected[rows], rtol=1e-6, atol=1e-6)
        found, other = gradient[rows][:, classes], slope[rows][:, : len(classes)]
        torch.testing.assert_close(found, other, rtol=1e-6, atol=1e-6)
        assert len(classes) > 1 or (losses[rows] == 0).all()


def test_accuracy_and_f1_are_of_the_most_probable_allowed_class() -> None:
    problem = Classification(spec(9, CLASSES))
    metrics = problem.metrics()
    output = replace(random_output(rows=ROWS), logits=masked(LOGITS))
    problem.update(metrics, output, LABELS, torch.ones(ROWS, dtype=torch.bool))
    scored = zip(itertools.cycle(SETS), LOGITS.tolist(), strict=False)
    best = [max(allowed, key=logits.__getitem__) for allowed, logits in scored]
    right = sum(label == guess for label, guess in zip(LABELS.tolist(), best, strict=True))
    assert float(metrics["accuracy"].compute()) == pytest.approx(right / ROWS)
    f1 = f1_score(LABELS, best, average="macro")
    assert float(metrics["f1_macro"].compute()) == pytest.approx(f1)
