"""Attention as an explanation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch


@dataclass
class Attention(Attribution):
    """The attention weight of each item, mean over heads; the same for all classes."""

    name = "attention"
    signed = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        return output.weights.double().mean(1), {}
