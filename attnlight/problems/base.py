"""What a problem says: everything that tasks, tests and pages ask about the kind of prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import MetricCollection

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.targets import begun
from attnlight.errors import InputError
from attnlight.problems.released import ReleasedLoss
from attnlight.problems.words import Words

# First items of what is found in labels (R,), in predictions (R,), and in both, (R,) each, from the
# places (S,) where texts start and the names of the classes.
Places = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]
Count = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Sequence[str]], Places]


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
    """

    name: ClassVar[str]
    monitor: ClassVar[tuple[str, str]] = ("val/accuracy", "max")
    adversary_terms: ClassVar[tuple[str, str]] = ("tvd", "kl")
    released: ClassVar[ReleasedLoss | None] = None

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

    @abstractmethod
    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        """Add the instances where `real` (R,) holds; labels (R,)."""

    @classmethod
    @abstractmethod
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        """What pages call the parts of the problem."""

    @classmethod
    def count(cls, target: str) -> Count | None:
        """What F1 counts in finished records, for a target; None where F1 is of classes."""
        return None

    def losses(self, output: AttentionOutput, batch: TextBatch, class_weight: Tensor) -> Tensor:
        """Cross-entropy of each instance (R,), in nats, times the weight (C,) of its class."""
        return cross_entropy(output.logits, self.labels(batch), class_weight, reduction="none")

    def asked(self, batch: TextBatch) -> TextBatch:
        """A batch of raw texts with the rows that the corpus asks of its own.

        Nothing marks a token of a raw sentence: where the corpus marks one, all tokens are rows.
        """
        return begun(batch) if self.spec["target"] == "sentence" else batch

    def difference(self, spec: Mapping[str, Any]) -> str | None:
        """How a model's spec differs from that of the corpus, in words; None where it does not."""
        found = {
            "token ids": (spec["vocab_size"], self.spec["vocab_size"]),
            "classes": (len(spec["classes"]), len(self.classes)),
        }
        for what, (there, here) in found.items():
            if there != here:
                return f"has {there} {what}, the corpus in `data` {here}"
        return None

    def released_loss(self) -> ReleasedLoss:
        """The published adversary's loss as its code has it.

        Raises:
            InputError: There is none for this problem, or for such a corpus.
        """
        released = self.released
        if released is None:
            raise InputError(f"compat is not known for {self.name}: leave it out.")
        if self.spec["target"] != "tokens" or released.classes not in (None, len(self.classes)):
            raise InputError(f"compat is the released loss of {released.of}: leave it out.")
        return released
