"""A class, the next word, for each token of a translation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.problems.base import Problem, Words

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Translation(Problem):
    """The next word of a translation, by attention over the words of its source.

    An instance is a token of the translation, its end included: its words before are given (teacher
    forcing). Classes are the words of the target vocabulary.
    """

    name = "translation"
    monitor: ClassVar[tuple[str, str]] = ("val/loss", "min")
    tags = True
    by_class = True
    # The total variation of a vocabulary's words has almost no gradient where the right one is improbable.
    adversary_terms = ("nll", "kl")

    @staticmethod
    @override
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        text, position = (_targets(batch) >= 0).nonzero().unbind(-1)
        return torch.stack([batch.index[text], position], dim=1), batch.attendable()[text]

    @override
    def labels(self, batch: TextBatch) -> Tensor:
        target = _targets(batch)
        return target[target >= 0]

    @override
    def metrics(self) -> MetricCollection:
        from torchmetrics import MetricCollection
        from torchmetrics.classification import MulticlassAccuracy

        accuracy = MulticlassAccuracy(len(self.classes), average="micro")
        return MetricCollection({"accuracy": accuracy})

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        return Words(cls.name, "token", "sentence", "accuracy", "loss", "a decoder")


def _targets(batch: TextBatch) -> Tensor:
    """Class of each target token, (B, T), -100 on padding."""
    if batch.target is None:
        raise InputError(
            "the corpus has no translations: give a corpus of sources and targets in `data`, such as "
            "SymbolSequences, or another `problem` in `model`."
        )
    return batch.target
