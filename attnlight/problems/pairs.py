"""A class for each pair of a passage and a query: answers and inferences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

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
