"""A class for each text, or for each pair of a passage and a query: answers and inferences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.problems.base import Problem, Words
from attnlight.problems.released import WIEGREFFE_PINTER, ReleasedLoss

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Classification(Problem):
    """A class for each text, answered by attention over its words or its sentences.

    AUROC and average precision of more than two classes are one-against-rest macro means.
    """

    name = "classification"
    released: ClassVar[ReleasedLoss | None] = WIEGREFFE_PINTER

    @staticmethod
    @override
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        mask = batch.attendable()
        rows = torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1)
        return rows, mask if mask.ndim == 2 else mask.any(-1)

    @override
    def labels(self, batch: TextBatch) -> Tensor:
        if batch.labels is None:
            raise InputError("the corpus has no labels; training and testing need them.")
        if batch.labels.ndim != 1:
            raise InputError("the corpus has a label for each token: train a ChunkTagger on it.")
        return batch.labels

    @override
    def metrics(self) -> MetricCollection:
        # At use: torchmetrics takes longer to import than all that a prediction needs.
        from torchmetrics import Accuracy, AveragePrecision, MetricCollection
        from torchmetrics.classification import BinaryAUROC, BinaryF1Score

        from attnlight.problems.metrics import MacroAUROC, MacroF1

        classes = len(self.classes)
        # All states of two classes are one-dimensional: torchmetrics cannot merge an empty
        # two-dimensional one.
        kind: Any = {"task": "multiclass" if classes > 2 else "binary", "num_classes": classes}
        accuracy = Accuracy(**kind, average="micro")
        metrics: dict[str, Any] = {"accuracy": accuracy, "f1_macro": MacroF1(classes)}
        auroc = BinaryAUROC() if classes < 3 else MacroAUROC(classes)
        metrics |= {"auroc": auroc, "average_precision": AveragePrecision(**kind)}
        if classes == 2:
            metrics["f1_positive"] = BinaryF1Score()
        return MetricCollection(metrics)

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        f1 = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
        return Words(cls.name, "text", "text", f1, f1, "an MLP")


if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Pairs(Classification):
    """A class for each pair, answered by the query's attention over the passage.

    Classes are the answers, or the relations of a hypothesis to a premise. Macro F1 is the mean over
    the classes that occur in labels or predictions.
    """

    name = "pairs"
    released = None
    query = True
    by_class = True  # of two classes too both metrics are of several classes

    @override
    def metrics(self) -> MetricCollection:
        from torchmetrics import MetricCollection
        from torchmetrics.classification import MulticlassAccuracy

        from attnlight.problems.metrics import MacroF1

        classes = len(self.classes)
        accuracy = MulticlassAccuracy(classes, average="micro")
        return MetricCollection({"accuracy": accuracy, "f1_macro": MacroF1(classes)})

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        return Words(cls.name, "pair", "pair", "accuracy", "accuracy", "an MLP")
