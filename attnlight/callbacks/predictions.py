"""Record predictions and the entropy of attention."""

from collections.abc import Mapping

from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.functional import attention_entropy
from attnlight.functional.readout.instances import row_texts
from attnlight.models.readout import Readout


class Predictions(InterpretabilityTest):
    """Record label, prediction, probabilities, length and the entropy of attention.

    Columns beside `prediction` and `max_attention`: `label` (if the corpus has labels),
    `probabilities` (C), `length` (attended items), `attention_entropy` (nats, mean over heads).
    """

    measures = ("max_attention", "attention_entropy")

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Tensor]:
        columns = {
            "probabilities": output.probabilities,
            "length": output.mask.sum(dim=-1),
            "attention_entropy": attention_entropy(output.weights).mean(dim=-1),
        }
        label = row_labels(batch, output)
        return columns if label is None else {"label": label} | columns


def row_labels(batch: TextBatch, output: AttentionOutput) -> Tensor | None:
    """Label of each row, (R,), from labels per text or per token; None without labels."""
    if batch.labels is None:
        return None
    text = row_texts(batch, output)
    if batch.labels.ndim == 1:
        return batch.labels[text]
    return batch.labels[text, output.rows[:, 1]]
