"""Sizes of gradients: how much the prediction moves with each item's embedding."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.probing.row_gradients import gradient_scores


@dataclass
class Gradient(Attribution):
    """L2 norm of the gradient of the log odds by each item's embedding (Simonyan et al., 2014)."""

    name = "gradient"
    signed = False
    passes = 3

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        scores = gradient_scores(
            model, batch, output, target, lambda gradient, _: gradient.double().norm(dim=-1)
        )
        return scores, {}
