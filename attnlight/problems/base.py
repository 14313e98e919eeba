"""Base class of the prediction problems: all that tasks, tests and pages know of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.targets import prepend_boundary
from attnlight.errors import InputError
from attnlight.problems.released import ReleasedLoss

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Words:
    """The words by which pages name a problem's parts; `study.json` has them as a mapping.

    Attributes:
        problem: Name of the problem: `classification`, `tagging`.
        instance: One prediction: `text`, `token`.
        cluster: The resampling unit of confidence intervals: `text`, `sentence`.
        quality: The measure of quality: `F1 of positive`, `macro F1`, `chunk F1`, `accuracy`.
        criterion: The measure of model selection on validation.
        guided: A guided model, with its article: `an MLP`, `a tagger`.
    """

    problem: str
    instance: str
    cluster: str
    quality: str
    criterion: str
    guided: str


class Problem(ABC):
    """A prediction problem on a corpus.

    Args:
        spec: Description of the corpus: `vocab_size`, `classes` (their names), `features` (number
            of ids of each feature of a token), `target`, and `query`, true if each text has a
            query.

    Attributes:
        name: Name of the problem in checkpoints and on pages.
        monitor: The logged value that selects the best epoch, and its direction, `max` or `min`.
        adversary_terms: Prediction and attention term of the published adversary.
        released: The adversary's loss in the paper's released code; None: no code was released.
        tags: Whether classes are of tokens: model and corpus must then agree on the names of the
            classes, the target and the features of tokens, not only on the number of classes.
        query: Whether a query attends over each text.
        by_class: Whether metrics receive predicted classes in place of probabilities.

    Raises:
        InputError: The texts of the corpus have queries and the problem has none, or the reverse.
    """

    name: ClassVar[str]
    monitor: ClassVar[tuple[str, str]] = ("val/accuracy", "max")
    adversary_terms: ClassVar[tuple[str, str]] = ("tvd", "kl")
    released: ClassVar[ReleasedLoss | None] = None
    tags: ClassVar[bool] = False
    query: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    def __init__(self, spec: Mapping[str, Any]) -> None:
        if bool(spec.get("query")) != self.query:
            kinds = "single texts", "pairs of a passage and a query"
            raise InputError(
                f"the model is for {kinds[self.query]}, but the corpus in `data` has "
                f"{kinds[not self.query]}: give `data` of the same kind, or another model. With "
                f"`joined: {str(not self.query).lower()}` in `data` pairs are {kinds[self.query]}."
            )
        self.spec = spec
        self.classes: list[str] = list(spec["classes"])

    @staticmethod
    @abstractmethod
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        """Keys of a batch's instances, (R, 2), and the items each may attend to, (R, N) bool."""

    @abstractmethod
    def labels(self, batch: TextBatch) -> Tensor:
        """Gold class of each instance, (R,).

        Raises:
            InputError: The corpus has no such labels.
        """

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """The metrics that validation and test log; `update` adds to them."""

    @classmethod
    @abstractmethod
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        """The words for the problem's parts on pages."""

    @classmethod
    def several_instances(cls) -> bool:
        """Whether a text has several instances, its parts, instead of being one."""
        words = cls.words([])
        return words.instance != words.cluster

    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        """Add the instances where `real` (R,) holds, with their labels (R,).

        By default metrics receive the probability of the second of two classes (R,), or the
        probabilities of all classes (R, C); if `by_class`, the predicted classes (R,).
        """
        if self.by_class:
            scores = output.logits.argmax(-1)[real]
        else:
            scores = output.probabilities[real]
            scores = scores[:, 1] if scores.shape[1] == 2 else scores
        metrics.update(scores, labels[real])

    @classmethod
    def chunks(
        cls,
        label: Numbers,
        prediction: Numbers,
        starts: Numbers,
        classes: Sequence[str],
        target: str,
    ) -> tuple[Flags, Flags, Flags] | None:
        """Starts of the chunks that F1 counts in finished records; None: F1 is of classes.

        Args:
            label: True class of each instance, one text after the other, (R,), -1 without a label.
            prediction: Predicted class, (R,), -1 where not measured.
            starts: Index of the first instance of each text, (S,).
            classes: Names of the classes.
            target: The target of the corpus's spec.

        Returns:
            Whether a chunk of labels, of predictions, and of both starts at each instance, (R,) each.
        """
        return None

    def losses(self, output: AttentionOutput, batch: TextBatch, class_weight: Tensor) -> Tensor:
        """Cross-entropy of each instance (R,), in nats, times the weight (C,) of its class."""
        weight = class_weight.to(output.logits.dtype)  # of a half-precision model, in single
        return cross_entropy(output.logits, self.labels(batch), weight, reduction="none")

    def mark_instances(self, batch: TextBatch) -> TextBatch:
        """A batch of raw texts with its instances marked, as the corpus's target requires.

        Raw sentences have no marked token: if the corpus marks one, all tokens are instances.
        """
        return prepend_boundary(batch) if self.spec["target"] == "sentence" else batch

    def difference(self, spec: Mapping[str, Any]) -> str | None:
        """How a model's spec differs from that of the corpus, in words; None if it does not."""
        expected, corpus = self.spec, "the corpus in `data`"
        if spec["vocab_size"] != expected["vocab_size"]:
            return f"has {spec['vocab_size']} token ids, {corpus} {expected['vocab_size']}"
        if not self.tags:
            classes, corpus_classes = len(spec["classes"]), len(expected["classes"])
            same = classes == corpus_classes
            return None if same else f"has {classes} classes, {corpus} {corpus_classes}"
        if spec["target"] != expected["target"]:
            return f"has target {spec['target']}, {corpus} {expected['target']}"
        if spec["classes"] != expected["classes"]:
            return f"was trained with other tags than those of {corpus}"
        if (spec["features"] or {}) == (expected["features"] or {}):
            return None
        names = [", ".join(one["features"] or {}) or "none" for one in (spec, expected)]
        return f"reads the features {names[0]}, {corpus} has {names[1]}, or other values"
