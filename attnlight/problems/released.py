"""Adversaries' losses on the scale of the papers' released code."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch

Gather = Callable[[Tensor], Tensor]  # values (...) of each rank, (ranks, ...)


class ReleasedLoss:
    """An adversary's loss on the scale of a paper's released code."""

    def scaled(
        self,
        prediction: Tensor,
        attention: Tensor,
        batch: TextBatch,
        output: AttentionOutput,
        gather: Gather | None,
    ) -> tuple[Tensor, Tensor]:
        """The two terms (R,) and (R,) on that scale; `gather` is None in evaluation."""
        return prediction, attention

    def class_weights(self, counts: list[int]) -> list[float] | None:
        """Weights of the classes that occur so often in training; None: all are 1."""
        return None

    def reduced(
        self, losses: Tensor, weights: Callable[[], Tensor], gather: Gather
    ) -> Tensor | None:
        """This rank's summand of the batch's loss; None: the reduction that was asked for.

        Args:
            losses: Losses (R,), 0 of a repeat.
            weights: Gives the class weight of each row's gold label, (R,), 0 of a repeat.
            gather: Values of each rank.
        """
        return None


class WiegreffePinter(ReleasedLoss):
    """Half the difference of probability, sums over the batch, and all of it times a sum of weights.

    The weights are those of the batch's gold classes: 1 for the first, n_0 / n_1 for the second.
    """

    @override
    def scaled(
        self,
        prediction: Tensor,
        attention: Tensor,
        batch: TextBatch,
        output: AttentionOutput,
        gather: Gather | None,
    ) -> tuple[Tensor, Tensor]:
        return prediction / 2, attention

    @override
    def class_weights(self, counts: list[int]) -> list[float]:
        return [1.0, counts[0] / counts[1]]

    @override
    def reduced(self, losses: Tensor, weights: Callable[[], Tensor], gather: Gather) -> Tensor:
        return losses.sum() * gather(weights().sum()).sum()


class Yang(ReleasedLoss):
    """KL over the B H N N elements of the batch as it is padded, so that a row counts 1 / N.

    In evaluation a row counts one over the length of its own sentence, so that batches change
    nothing.
    """

    @override
    def scaled(
        self,
        prediction: Tensor,
        attention: Tensor,
        batch: TextBatch,
        output: AttentionOutput,
        gather: Gather | None,
    ) -> tuple[Tensor, Tensor]:
        if gather is None:
            return prediction, attention * (1 / output.mask.sum(-1))
        sizes = [(output.rows[:, 0] >= 0).sum(), (batch.index >= 0).sum()]
        sizes.append(sizes[0].new_full((), batch.tokens.shape[1]))
        rows, texts, items = gather(torch.stack(sizes)).unbind(-1)
        return prediction, attention * (rows.sum() / (texts.sum() * items.amax() ** 2))
