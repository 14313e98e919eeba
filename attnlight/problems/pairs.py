"""A class for each pair of a passage and a query: answers and inferences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput
from attnlight.problems.base import Words
from attnlight.problems.classification import Classification

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

    @override
    def metrics(self) -> MetricCollection:
        from torchmetrics import MetricCollection
        from torchmetrics.classification import MulticlassAccuracy

        from attnlight.problems.metrics import MacroF1

        classes = len(self.classes)
        accuracy = MulticlassAccuracy(classes, average="micro")
        return MetricCollection({"accuracy": accuracy, "f1_macro": MacroF1(classes)})

    @override
    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        # Classes, not probabilities: of two classes too both metrics are of several classes.
        metrics.update(output.logits.argmax(-1)[real], labels[real])

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        return Words(cls.name, "pair", "pair", "accuracy", "accuracy", "an MLP")
