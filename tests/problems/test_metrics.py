"""Macro F1 against torchmetrics' own."""

import pytest
import torch
from torchmetrics.classification import MulticlassF1Score

from attnlight.problems.metrics import MacroF1


@pytest.mark.parametrize("classes", [2, 3, 40])
@pytest.mark.parametrize("probabilities", [True, False])
def test_is_that_of_torchmetrics(classes: int, probabilities: bool) -> None:
    torch.manual_seed(classes)
    ours, theirs = MacroF1(classes), MulticlassF1Score(classes, average="macro")
    for size in (1, 7, 30):
        scores, target = torch.rand(size, classes), torch.randint(classes, (size,))
        theirs.update(scores, target)
        given = scores if classes > 2 or not probabilities else scores.softmax(-1)[:, 1]
        ours.update(given if probabilities else scores.argmax(-1), target)
        assert float(ours.compute()) == pytest.approx(float(theirs.compute()), abs=1e-6)
    ours.reset()
    assert float(ours.compute()) == 0


def test_memory_grows_with_the_classes_and_not_with_their_pairs() -> None:
    metric = MacroF1(1_000_000)
    metric.update(torch.tensor([5, 999_999, 7]), torch.tensor([5, 999_999, 8]))
    assert float(metric.compute()) == pytest.approx(2 / 4)
