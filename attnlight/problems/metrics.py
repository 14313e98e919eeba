"""Metrics that torchmetrics does not have."""

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAUROC
from torchmetrics.utilities import dim_zero_cat
from typing_extensions import override

from attnlight.data.bio import tag_scheme
from attnlight.functional.chunks import count_chunks

SpanScore = Literal["precision", "recall", "f1"]
SPAN_SCORES: tuple[SpanScore, ...] = get_args(SpanScore)


class MacroF1(Metric):
    """Mean F1 of the classes that occur among predictions or labels; 0 if none does.

    torchmetrics counts pairs of classes, which takes 80 GB for 100,000 classes.

    Args:
        classes: Number of classes C.

    Attributes:
        counts: How often each class is predicted rightly, is predicted and is the label, (3, C) long.
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.counts: Tensor
        self.add_state("counts", torch.zeros(3, classes, dtype=torch.long), dist_reduce_fx="sum")

    @override
    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count the classes `target` (R,) long and the predicted ones of R instances.

        The latter are (R,) long, probabilities (R, C), or of two classes those of the second (R,).
        """
        if preds.is_floating_point():
            preds = preds.argmax(dim=-1) if preds.ndim > 1 else (preds > 0.5).long()
        groups = preds[preds == target], preds, target
        size = self.counts.shape[1]
        self.counts += torch.stack([group.bincount(minlength=size) for group in groups])

    @override
    def compute(self) -> Tensor:
        """The mean, 0 to 1."""
        correct, predicted, gold = self.counts.double()
        total = predicted + gold
        mean: Tensor = (2 * correct / total)[total > 0].sum() / (total > 0).sum().clamp(min=1)
        return mean


class MacroAUROC(MulticlassAUROC):
    """Mean AUROC, each class against the rest, of the classes that occur; NaN if only one does.

    torchmetrics counts a class that does not occur as 0.

    Args:
        classes: Number of classes C.
    """

    def __init__(self, classes: int) -> None:
        super().__init__(classes, average="none")

    @override
    def compute(self) -> Tensor:  # type: ignore[override]
        """The mean, 0 to 1."""
        labels = dim_zero_cat(self.target)
        counts = labels.bincount(minlength=self.num_classes)
        with warnings.catch_warnings():  # of classes that are left out
            warnings.simplefilter("ignore")
            each = super().compute()
        return each[(counts > 0) & (counts < len(labels))].mean()


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
        """Count the chunks of sentences, one after the other, by the classes (T,) long of tokens.

        `begins` says whether a token is the first of its sentence, (T,) bool.
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
