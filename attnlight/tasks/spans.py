"""What a chunking tagger is judged by: precision, recall and F1 of whole chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from typing_extensions import override

from attnlight.data.bio import split_tag
from attnlight.functional.spans import TagScheme, count_chunks


class SpanMetric(Metric, ABC):
    """Count chunks as conlleval does, which is seqeval's default mode.

    Counts are whole numbers and are summed over devices, so that these cannot change the result.
    Metrics of this kind share one state in a `MetricCollection`.

    Args:
        tags: Names of the C tags in the order of their classes: `O`, `B-<type>`, `I-<type>`.

    Attributes:
        counts: Chunks found right, found, and there to be found, (3,) long.

    Raises:
        InputError: A name is of another scheme.
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False

    def __init__(self, tags: Sequence[str]) -> None:
        super().__init__()
        self.scheme = tag_scheme(tags)
        self.counts: Tensor
        self.add_state("counts", torch.zeros(3, dtype=torch.long), dist_reduce_fx="sum")

    @override
    def update(self, preds: Tensor, target: Tensor, begins: Tensor) -> None:
        """Count the chunks of some sentences.

        Args:
            preds: Predicted classes of their tokens, one sentence after the other, (T,) long.
            target: True classes, (T,) long.
            begins: Whether a token is the first of its sentence, (T,) bool.
        """
        self.counts += count_chunks(preds, target, begins, self.scheme)

    @override
    def compute(self) -> Tensor:
        """The score, 0 to 1; 0 where there is nothing to divide by."""
        part, whole = self._fraction(*self.counts.double())
        return torch.where(whole > 0, part / whole.clamp(min=1), 0.0)

    @abstractmethod
    def _fraction(self, right: Tensor, found: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Numerator and denominator of the score."""


class SpanPrecision(SpanMetric):
    """Share of the chunks found that are right."""

    @override
    def _fraction(self, right: Tensor, found: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        return right, found


class SpanRecall(SpanMetric):
    """Share of the chunks there that are found."""

    @override
    def _fraction(self, right: Tensor, found: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        return right, there


class SpanF1(SpanMetric):
    """Harmonic mean of precision and recall."""

    @override
    def _fraction(self, right: Tensor, found: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * right, found + there


def tag_scheme(tags: Sequence[str]) -> TagScheme:
    """What tags of these names say.

    Raises:
        InputError: A name is none of `O`, `B-<type>` and `I-<type>`.

    Example:
        >>> tag_scheme(["O", "B-NP", "I-NP"]).chunk
        tensor([-1,  0,  0])
    """
    parts = [split_tag(tag) for tag in tags]
    chunks = ["", *sorted({chunk for _, chunk in parts if chunk})]
    return TagScheme(
        torch.tensor([chunks.index(chunk) - 1 for _, chunk in parts]),
        torch.tensor([prefix == "I" for prefix, _ in parts]),
    )


def tagging_metrics(tags: Sequence[str]) -> MetricCollection:
    """Accuracy of tokens, and precision, recall and F1 of chunks.

    Its `update` takes `preds`, `target` and `begins` by name, as `SpanMetric` does.
    """
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(len(tags), average="micro"),
            "precision": SpanPrecision(tags),
            "recall": SpanRecall(tags),
            "f1": SpanF1(tags),
        }
    )


def answer_metrics(classes: int) -> MetricCollection:
    """Accuracy, and F1 as the mean over classes, where a sentence has one answer and no chunks.

    A class that is neither there nor predicted has no F1. Its `update` takes what that of
    `tagging_metrics` does.
    """
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(classes, average="micro"),
            "f1": MulticlassF1Score(classes, average="macro"),
        }
    )
