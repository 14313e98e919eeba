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
            top, classes = probabilities.topk(_TOP, dim=-1)
            columns["probability_prediction"] = top[:, 0]
            columns["entropy"] = torch.special.entr(probabilities).sum(-1)
            columns |= {"top_classes": classes, "top_probabilities": top}
            if label is not None:
                of_label = probabilities.gather(-1, label.clamp(min=0)[:, None]).squeeze(-1)
                columns["probability_label"] = of_label.masked_fill(label < 0, torch.nan)
        return columns | {
            "length": output.mask.sum(dim=-1),
            "attention_entropy": attention_entropy(output.weights).mean(dim=-1),
        }


def row_labels(batch: TextBatch, output: AttentionOutput) -> Tensor | None:
    """Label of each row, (R,), from labels per text, token or target token; None without labels.

    A translation that the model wrote itself is no label.
    """
    labels = batch.labels if batch.target is None else batch.target
    if labels is None or "target" in batch.known:
        return None
    of_text = labels[row_texts(batch, output)]
    return of_text if labels.ndim == 1 else of_text.gather(1, output.rows[:, 1:]).squeeze(1)
