"""Gradient times embedding, with its sign."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.probing.row_gradients import gradient_scores


@dataclass
class InputGradient(Attribution):
    """Gradient of the log odds by each item's embedding, times the embedding.

    For two classes its size orders the items of a text like `functional.input_gradient`, which is of
    class probabilities and, as published, holds attention fixed.

    Args:
        detached: Hold the last layer's attention fixed.
    """

    name = "input_gradient"
    signed = True
    passes = 3

    detached: bool = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        return gradient_scores(model, batch, output, target, detached=self.detached), {}
