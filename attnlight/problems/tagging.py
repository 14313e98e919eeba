"""A class for each token, judged by precision, recall and F1 of whole chunks, where tags are of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.bio import has_chunks, tag_scheme
from attnlight.errors import InputError
from attnlight.functional.chunks import find_chunks
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.problems.base import Flags, Numbers, Problem, Words
from attnlight.problems.released import YANG

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Tagging(Problem):
    """A class for each token of a sentence, or for the tokens of the corpus's target.

    If every token is classified and tags are of chunks, F1 is of chunks; if only some are, or tags are
    plain, such as parts of speech, it is the mean over the classes that occur in labels or predictions.
    """

    name = "tagging"
    monitor = ("val/f1", "max")
    adversary_terms = ("nll", "kl")
    released = YANG
    tags = True

    @staticmethod
    @override
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        text, position = batch.instances().nonzero().unbind(-1)
        return torch.stack([batch.index[text], position], dim=1), batch.attendable()[text]

    @override
    def labels(self, batch: TextBatch) -> Tensor:
        if batch.labels is None or batch.labels.ndim != 2:
            raise InputError("the corpus has no label for each token; a tagger needs them.")
        return batch.labels[batch.instances()]

    @override
    def metrics(self) -> MetricCollection:
        from torchmetrics import MetricCollection
        from torchmetrics.classification import MulticlassAccuracy

        from attnlight.problems.metrics import SPAN_SCORES, MacroF1, SpanMetric

        classes = len(self.classes)
        accuracy = MulticlassAccuracy(classes, average="micro")
        if not has_chunks(self.classes, self.spec["target"]):
            return MetricCollection({"accuracy": accuracy, "f1": MacroF1(classes)})
        spans = {str(name): SpanMetric(self.classes, name) for name in SPAN_SCORES}
        return MetricCollection({"accuracy": accuracy, **spans})

    @override
    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        begins = texts_of_rows(output.rows).diff(prepend=real.new_full((1,), -1).long()) != 0
        metrics.update(
            preds=output.logits.argmax(-1)[real], target=labels[real], begins=begins[real]
        )

    @classmethod
    @override
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        chunks = has_chunks(classes, target)
        quality, criterion = ("chunk F1",) * 2 if chunks else ("accuracy", "macro F1")
        return Words(cls.name, "token", "sentence", quality, criterion, "a tagger")

    @classmethod
    @override
    def chunks(
        cls,
        label: Numbers,
        prediction: Numbers,
        starts: Numbers,
        classes: Sequence[str],
        target: str,
    ) -> tuple[Flags, Flags, Flags] | None:
        if not has_chunks(classes, target):
            return None
        # As conlleval reads tags. A token without a class is outside all chunks; a predicted chunk
        # matches a gold one of the same type, start and end.
        scheme, outside = tag_scheme([*classes, "O"]), len(classes)
        begins = torch.zeros(len(label), dtype=torch.bool)
        begins[starts] = True
        (gold, gold_ends), (predicted, predicted_ends) = (
            find_chunks(torch.from_numpy(np.where(tags < 0, outside, tags)), begins, scheme)
            for tags in (label, prediction)
        )
        both = (predicted >= 0) & (predicted == gold) & (predicted_ends == gold_ends)
        return (gold >= 0).numpy(), (predicted >= 0).numpy(), both.numpy()
