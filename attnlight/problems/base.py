"""What a problem says: everything that tasks, tests and pages ask about the kind of prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import MetricCollection

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.targets import prepend_boundary
from attnlight.problems.released import ReleasedLoss
from attnlight.problems.words import Words

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Problem(ABC):
    """What is asked of a text.

    Args:
        spec: What a model must know of its corpus: `vocab_size`, `classes` (their names),
            `features` (ids of each feature of a token), `target`.

    Attributes:
        name: By which checkpoints and pages know it.
        monitor: The logged value that says which epoch is best, and `max` or `min` of it.
        adversary_terms: Prediction and attention term of the adversary that was published.
        released: Its loss as its code has it; None: there is none.
        tags: Whether classes are of tokens: a model must then agree with its corpus on their names,
            the target and the features of tokens, not on the number of classes alone.
    """

    name: ClassVar[str]
    monitor: ClassVar[tuple[str, str]] = ("val/accuracy", "max")
    adversary_terms: ClassVar[tuple[str, str]] = ("tvd", "kl")
    released: ClassVar[ReleasedLoss | None] = None
    tags: ClassVar[bool] = False

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.classes: list[str] = list(spec["classes"])

    @staticmethod
    @abstractmethod
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        """Keys of the instances of a batch, (R, 2), and what the attention of each may reach, (R, N)."""

    @abstractmethod
    def labels(self, batch: TextBatch) -> Tensor:
        """Gold class of each instance, (R,).

        Raises:
            InputError: The corpus has no such labels.
        """

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """The measures that validation and test log; `update` feeds them."""

    @classmethod
    @abstractmethod
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        """What pages call the parts of the problem."""

    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        """Add the instances where `real` (R,) holds; labels (R,).

        Unless a problem says otherwise, metrics are given the probability of the second of two
        classes (R,), or those of all (R, C).
        """
        scores = output.probabilities[real]
        metrics.update(scores[:, 1] if scores.shape[1] == 2 else scores, labels[real])

    @classmethod
    def chunks(
        cls,
        label: Numbers,
        prediction: Numbers,
        starts: Numbers,
        classes: Sequence[str],
        target: str,
    ) -> tuple[Flags, Flags, Flags] | None:
        """First items of the chunks that F1 counts in finished records; None: it is of classes.

        Args:
            label: True class of each instance, one text after the other, (R,), -1 where it has none.
            prediction: Predicted class, (R,), -1 where it was not measured.
            starts: Place of the first instance of each text, (S,).
            classes: Names of the classes.
            target: What the corpus asks for, as in its spec.

        Returns:
            Those of the labels, of the predictions, and of both, (R,) each.
        """
        return None

    def losses(self, output: AttentionOutput, batch: TextBatch, class_weight: Tensor) -> Tensor:
        """Cross-entropy of each instance (R,), in nats, times the weight (C,) of its class."""
        return cross_entropy(output.logits, self.labels(batch), class_weight, reduction="none")

    def asked(self, batch: TextBatch) -> TextBatch:
        """A batch of raw texts with the rows that the corpus asks of its own.

        Nothing marks a token of a raw sentence: where the corpus marks one, all tokens are rows.
        """
        return prepend_boundary(batch) if self.spec["target"] == "sentence" else batch

    def difference(self, spec: Mapping[str, Any]) -> str | None:
        """How a model's spec differs from that of the corpus, in words; None where it does not."""
        own, corpus = self.spec, "the corpus in `data`"
        if spec["vocab_size"] != own["vocab_size"]:
            return f"has {spec['vocab_size']} token ids, {corpus} {own['vocab_size']}"
        if not self.tags:
            there, here = len(spec["classes"]), len(own["classes"])
            return None if there == here else f"has {there} classes, {corpus} {here}"
        if spec["target"] != own["target"]:
            return f"has target {spec['target']}, {corpus} {own['target']}"
        if spec["classes"] != own["classes"]:
            return f"was trained with other tags than those of {corpus}"
        if (spec["features"] or {}) == (own["features"] or {}):
            return None
        names = [", ".join(one["features"] or {}) or "none" for one in (spec, own)]
        return f"reads the features {names[0]}, {corpus} has {names[1]}, or other values"
