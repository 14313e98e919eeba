"""Record predictions and the entropy of attention."""

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import MANY_CLASSES, AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.functional import attention_entropy
from attnlight.functional.readout.instances import row_texts
from attnlight.models.readout import Readout

_TOP = 20  # classes that are recorded of many


class Predictions(InterpretabilityTest):
    """Record label, prediction, probabilities, length and the entropy of attention.

    Columns beside `prediction` and `max_attention`: `label` (if the corpus has labels),
    `probabilities` (C), `length` (attended items), `attention_entropy` (nats, mean over heads). Of more
    than 256 classes, in place of `probabilities`: those of the prediction and of the label,
    `probability_prediction` and `probability_label`; `entropy` of the prediction (nats); and the 20 most
    probable classes, `top_classes`, with `top_probabilities`.
    """

    joins_batches = True
    measures = ("max_attention", "attention_entropy")

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        label = row_labels(batch, output)
        probabilities = output.probabilities
        columns = {} if label is None else {"label": label}
        if probabilities.shape[1] <= MANY_CLASSES:
            columns["probabilities"] = probabilities
        else:
            columns |= _of_many_classes(probabilities, label)
        return columns | {
            "length": output.mask.sum(dim=-1),
            "attention_entropy": attention_entropy(output.weights).mean(dim=-1),
        }


def _of_many_classes(probabilities: Tensor, label: Tensor | None) -> dict[str, Tensor]:
    """What is recorded of probabilities (R, C) of more classes than a record holds."""
    top, classes = probabilities.topk(_TOP, dim=-1)
    columns = {
        "probability_prediction": top[:, 0],
        "entropy": torch.special.entr(probabilities).sum(-1),
        "top_classes": classes,
        "top_probabilities": top,
    }
    if label is not None:
        of_label = probabilities.gather(-1, label.clamp(min=0)[:, None]).squeeze(-1)
        columns["probability_label"] = of_label.masked_fill(label < 0, torch.nan)
    return columns


def row_labels(batch: TextBatch, output: AttentionOutput) -> Tensor | None:
    """Label of each row, (R,), from labels per text, token or target token; None without labels."""
    if batch.target is not None:
        return batch.target[row_texts(batch, output), output.rows[:, 1]]
    if batch.labels is None:
        return None
    text = row_texts(batch, output)
    if batch.labels.ndim == 1:
        return batch.labels[text]
    return batch.labels[text, output.rows[:, 1]]
