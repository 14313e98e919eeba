"""Does shuffling attention change the output? (Jain & Wallace 2019, 4.2.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.errors import InputError
from attnlight.functional import (
    js_divergence,
    permuted_logits,
    permuted_weights,
    total_variation,
)


class AttentionPermutation(InterpretabilityTest):
    """Shuffle each text's attention over its items and measure how far the prediction moves.

    Columns: `median_tvd` and `median_js` (nats), the median over the shuffles of the total
    variation distance and Jensen-Shannon divergence between the predictions with shuffled and
    with own attention; `flip_rate`, the share of shuffles that change the predicted class. The
    shuffles are a function of seed, index and draw number alone, the same for all heads and, in a
    tagger, for all tokens of a sentence. A text of one item has nothing to shuffle: all three are
    0, up to rounding.

    Args:
        draws: Shuffles K per instance; the paper takes 100.
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances, chosen by a seeded hash; None: all.
        seed: Seed of the shuffles and of the choice of instances.
        figures: Draw the violins of `median_tvd` by maximum attention (the paper's figure).
    """

    measures = ("median_tvd", "median_js", "flip_rate")

    def __init__(
        self,
        draws: int = 100,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
    ) -> None:
        super().__init__(every_n_epochs, max_instances, seed, figures)
        if draws < 1:
            raise InputError(f"draws of {self.name} is {draws}; it must be at least 1.")
        self.draws = draws

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, model: AttentionModel
    ) -> Mapping[str, Tensor]:
        shuffled = torch.softmax(self._logits(output, model), dim=-1)  # (R, K, C)
        own = output.probabilities.unsqueeze(1)
        flipped = shuffled.argmax(dim=-1) != own.argmax(dim=-1)
        return {
            "median_tvd": _median(total_variation(shuffled, own)),
            "median_js": _median(js_divergence(shuffled, own)),
            "flip_rate": flipped.to(shuffled.dtype).mean(dim=-1),
        }

    def _logits(self, output: AttentionOutput, model: AttentionModel) -> Tensor:
        texts = output.rows.clone()
        texts[:, 1] = 0  # what is drawn for
        if output.item_logits is not None:
            return permuted_logits(
                output.weights,
                output.item_logits,
                output.mask,
                texts,
                draws=self.draws,
                seed=self.seed,
            )
        weights = permuted_weights(
            output.weights, output.mask, texts, draws=self.draws, seed=self.seed
        )
        return model.readout(output, weights)


def _median(values: Tensor) -> Tensor:
    """Median over the last dimension, the mean of the two middle values where K is even."""
    return torch.quantile(values, 0.5, dim=-1)
