"""Gradients of the prediction: by each item's embedding, and by its attention weight."""

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.readout.opaque import readout_gradient
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


@dataclass
class GradientXAttention(Attribution):
    """Gradient of the log odds by each attention weight, times the weight, summed over heads.

    Serrano and Smith (2019) rank items by the same product for the probability of the predicted
    class, which differs by a factor that is constant over the items of a row. The weights are free
    variables after the softmax.
    """

    name = "gradient_x_attention"
    signed = True

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        gradient = readout_gradient(model, output, lambda logits: log_odds(logits, target))
        return (gradient * output.weights).double().sum(1), {}


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
