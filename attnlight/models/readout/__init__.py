"""Readouts: from attention to logits, and the quantities that tests compute from them."""

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.models.readout.base import SCORES, Gradient, Readout
from attnlight.models.readout.opaque import OpaqueReadout

__all__ = ["SCORES", "Gradient", "OpaqueReadout", "Readout", "readout_of"]


def readout_of(batch: TextBatch, output: AttentionOutput, model: AttentionModel) -> Readout:
    """The readout of a batch: affine if its output has item logits, else opaque."""
    kind = OpaqueReadout if output.item_logits is None else Readout
    return kind(batch, output, model)
