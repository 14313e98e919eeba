"""A class for each text."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryAveragePrecision,
    BinaryF1Score,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassF1Score,
)
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.problems.base import Problem
from attnlight.problems.released import ReleasedLoss, WiegreffePinter
from attnlight.problems.words import Words


class _BinaryMacroF1(MulticlassF1Score):
    """Macro F1 of two classes from the probability of the positive one."""

    def __init__(self) -> None:
        super().__init__(num_classes=2, average="macro")

    @override
    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update((preds > 0.5).long(), target)


def classification_metrics(num_classes: int) -> MetricCollection:
    """Accuracy, macro F1, AUROC and average precision, and for two classes the positive one's F1.

    AUROC and average precision of more than two classes are one-against-rest macro means. With two
    classes every state is one-dimensional: a rank without rows would break two-dimensional ones.
    """
    metrics: dict[str, Metric] = (
        {
            "accuracy": BinaryAccuracy(),
            "f1_macro": _BinaryMacroF1(),
            "f1_positive": BinaryF1Score(),
            "auroc": BinaryAUROC(),
            "average_precision": BinaryAveragePrecision(),
        }
        if num_classes == 2
        else {
            "accuracy": MulticlassAccuracy(num_classes, average="micro"),
            "f1_macro": MulticlassF1Score(num_classes, average="macro"),
            "auroc": MulticlassAUROC(num_classes, average="macro"),
            "average_precision": MulticlassAveragePrecision(num_classes, average="macro"),
        }
    )
    return MetricCollection(metrics)  # type: ignore[arg-type]


def scores(probabilities: Tensor) -> Tensor:
    """What the metrics take: (B,) for two classes, of the second one; (B, C) for more."""
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


class Classification(Problem):
    """A class for each text, answered by attention over its words or its sentences."""

    name = "classification"

    @staticmethod
    @override
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        return attended_items(batch)

    @override
    def labels(self, batch: TextBatch) -> Tensor:
        if batch.labels is None:
            raise InputError("the corpus has no labels; training and testing need them.")
        if batch.labels.ndim != 1:
            raise InputError("the corpus has a label for each token; ChunkTagger learns such ones.")
        return batch.labels

    @override
    def metrics(self) -> MetricCollection:
        return classification_metrics(len(self.classes))

    @override
    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        metrics.update(scores(output.probabilities[real]), labels[real])

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        f1 = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
        return Words(cls.name, "text", "text", f1, f1, "an MLP")

    @override
    def released_loss(self) -> ReleasedLoss:
        if len(self.classes) != 2:
            raise InputError("compat is the released loss of two classes.")
        return WiegreffePinter()


def attended_items(batch: TextBatch) -> tuple[Tensor, Tensor]:
    """Rows (B, 2) of a classifier's batch, and what its last attention may reach, (B, N) bool."""
    mask = batch.attendable()
    rows = torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1)
    return rows, mask if mask.ndim == 2 else mask.any(-1)
