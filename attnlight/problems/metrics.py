"""Metrics that torchmetrics does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassF1Score
from typing_extensions import override

from attnlight.functional.chunks import count_chunks
from attnlight.problems.tagging import tag_scheme

SpanScore = Literal["precision", "recall", "f1"]
SPAN_SCORES: tuple[SpanScore, ...] = get_args(SpanScore)


class BinaryMacroF1(MulticlassF1Score):
    """Macro F1 of two classes from the probability of the positive one."""

    @override
    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update((preds > 0.5).long(), target)


class SpanMetric(Metric):
    """Precision, recall or F1 of chunks, counted as conlleval does, which is seqeval's default mode.

    Counts are integers summed over devices, so that the number of devices cannot change the result.
    Metrics of this class share one state in a `MetricCollection`.

    Args:
        tags: Names of the C tags in the order of their classes: `O`, `B-<type>`, `I-<type>`.
        score: `precision`, the share of predicted chunks that are correct; `recall`, the share of
            gold chunks that are predicted; `f1`, the harmonic mean of both.

    Attributes:
        counts: Numbers of correct, predicted and gold chunks, (3,) long.

    Raises:
        InputError: A name is not of this scheme.
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False

    def __init__(self, tags: Sequence[str], score: SpanScore) -> None:
        super().__init__()
        self.scheme, self.score = tag_scheme(tags), score
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
        """The score, 0 to 1; 0 where the denominator is 0."""
        correct, predicted, gold = self.counts.double()
        numerator, denominator = {
            "precision": (correct, predicted),
            "recall": (correct, gold),
            "f1": (2 * correct, predicted + gold),
        }[self.score]
        return torch.where(denominator > 0, numerator / denominator.clamp(min=1), 0.0)
