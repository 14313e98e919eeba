"""What a classifier is judged by."""

from __future__ import annotations

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
