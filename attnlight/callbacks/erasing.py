"""What the tests that erase items ask of an output, whatever the readout after attention is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput
from attnlight.functional import erase_each, first_flip, minimal_flip_set, weight_gradient
from attnlight.functional.candidates import read_each, read_ranking, readout_gradient
from attnlight.functional.erasure import settle, weigh
from attnlight.functional.flips import first_change
from attnlight.functional.rankings import ranking

SCORES = ("attention", "gradient", "gradient_x_attention")
Gradient = Literal["signed", "absolute"]


class Erasure(ABC):
    """Erasure of items from the attention of R rows, over H heads and N items, with C classes.

    Attributes:
        output: What a model said of a batch.
        bias: Logits where nothing is left, (C,) or (R, C).
        logits: Logits before anything is erased, (R, C) float64.
        lengths: Items of each row, (R,).
        weights: Attention, mean over heads, (R, N) float64, 0 off the mask.
    """

    def __init__(self, output: AttentionOutput, bias: Tensor, logits: Tensor) -> None:
        self.output = output
        self.bias = bias
        self.logits = logits
        self.lengths = output.mask.sum(-1)
        self._of_heads = output.weights.double().masked_fill(~output.mask.unsqueeze(1), 0.0)
        self.weights = self._of_heads.mean(1)

    @abstractmethod
    def gradient(self) -> Tensor:
        """Gradient of the winning class's probability by the weights, (R, H, N) float64."""

    @abstractmethod
    def each(self) -> Tensor:
        """Logits after erasing each item alone, (R, N, C) float64; off the mask meaningless."""

    @abstractmethod
    def first_flips(self, orders: Tensor) -> Tensor:
        """Items of orders (R, K, N) erased when the decision first changes, (R, K); -1 if never."""

    @abstractmethod
    def minimal(self) -> tuple[Tensor, Tensor] | None:
        """Size (R,), -1 if none, and members (R, N) of the smallest flip set; None if unknown."""

    def rankings(self, gradient: Gradient) -> Tensor:
        """Orders by each of `SCORES`, (R, 3, N); with several heads by the scores' means."""
        slope = self.gradient()
        slope = slope.abs() if gradient == "absolute" else slope
        product = (slope * self._of_heads).mean(1)
        scores = torch.stack([self.weights, slope.mean(1), product], dim=1)
        masks = self.output.mask.repeat_interleave(len(SCORES), dim=0)
        return ranking(scores.flatten(0, 1), masks).view(scores.shape)

    def undefined(self, fewest: int) -> Tensor:
        """Rows (R,) with fewer items than `fewest`, or with weights or logits that are no numbers."""
        held = [self.logits, self.output.logits, self.weights.sum(-1, keepdim=True)]
        return (self.lengths < fewest) | ~torch.cat(held, dim=-1).isfinite().all(-1)


class AffineErasure(Erasure):
    """Erasure in closed form, from item logits."""

    def __init__(self, output: AttentionOutput, item_logits: Tensor, bias: Tensor) -> None:
        terms = weigh(output.weights, item_logits, output.mask)
        logits = settle(terms.sum(2, keepdim=True), output.bias).squeeze(1)
        super().__init__(output, bias, logits)
        self._items = item_logits

    @override
    def gradient(self) -> Tensor:
        output = self.output
        return weight_gradient(output.weights, self._items, output.bias, output.mask)

    @override
    def each(self) -> Tensor:
        return erase_each(self.output.weights, self._items, self.bias, self.output.mask)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        output = self.output
        return first_flip(output.weights, self._items, self.bias, output.mask, orders)

    @override
    def minimal(self) -> tuple[Tensor, Tensor]:
        return minimal_flip_set(self.output.weights, self._items, self.bias, self.output.mask)


class ReadoutErasure(Erasure):
    """Erasure by reading one candidate attention for each item, where the readout is not affine."""

    def __init__(self, output: AttentionOutput, model: AttentionModel, bias: Tensor) -> None:
        super().__init__(output, bias, output.logits.double())
        self._model = model

    @override
    def gradient(self) -> Tensor:
        # Under inference mode the output's own tensors could be in no graph. An RNN of a readout
        # has a backward pass in evaluation mode without cuDNN alone.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            output = self.output.apply(torch.clone)

            def readout(weights: Tensor) -> Tensor:
                return self._model.readout(output, weights)

            return readout_gradient(readout, output.weights, output.mask)

    @override
    def each(self) -> Tensor:
        return read_each(self._readout, self.output.weights, self.bias, self.output.mask)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        decision = self.logits.argmax(-1)[:, None]
        counts = []
        for order in orders.unbind(1):
            logits = read_ranking(
                self._readout, self.output.weights, self.bias, self.output.mask, order
            )
            counts.append(first_change(logits.argmax(-1) != decision))
        return torch.stack(counts, dim=1)

    @override
    def minimal(self) -> None:
        return None

    def _readout(self, weights: Tensor) -> Tensor:
        return self._model.readout(self.output, weights)


def erasure(
    output: AttentionOutput, model: AttentionModel, empty_logits: Tensor | None = None
) -> Erasure:
    """Erasure as the output allows it.

    Args:
        output: What the model said of a batch.
        model: The model, which is asked where the readout is not affine.
        empty_logits: Logits where nothing is left, (C,) or (R, C); None: the bias.
    """
    bias = output.bias if empty_logits is None else empty_logits
    if output.item_logits is None:
        return ReadoutErasure(output, model, bias)
    return AffineErasure(output, output.item_logits, bias)
