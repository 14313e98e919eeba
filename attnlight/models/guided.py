"""Classifiers whose attention is given: the guided MLP of Wiegreffe and Pinter (2019), 3.4."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import erase_each
from attnlight.models.classifier import AffineClassifier, FlatClassifier
from attnlight.models.hierarchical import HierarchicalClassifier

Guide = Callable[[TextBatch], Tensor]


class Guided(AffineClassifier):
    """Take the weights of the last attention from a guide.

    A subclass adds the classifier. Build it with the encoder `average` or `none`, which read each
    item alone, and with attention `uniform`, which has no parameter that would never be trained.

    Attributes:
        guide: Attention (B, 1, N) for a batch of texts, told by their dataset index; None before
            there is a corpus.
    """

    guide: Guide | None = None

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch of the guide's texts.

        Args:
            batch: B texts.
            weights: Attention to use in place of the guide's, (B, 1, N).
            embeddings: Token embeddings to use in place of `embed(batch)`.

        Raises:
            InputError: There is no guide, or it does not know these texts.
        """
        if weights is None:
            weights = self._guidance(batch)
        return super().forward(batch, weights, embeddings)  # type: ignore[safe-super]

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, N, C) without each item, NaN off the mask and where nothing is left.

        A guide knows whole texts alone: what it gave the others is renormalised. Since items are
        read alone, nothing else changes.
        """
        items = output.item_logits
        if items is None:  # of a training step
            items = self._classify(output.states).unsqueeze(1)
        logits = erase_each(output.weights, items, output.bias, output.mask)
        alone = output.mask.sum(-1, keepdim=True) < 2
        return logits.masked_fill((~output.mask | alone).unsqueeze(-1), torch.nan)

    def _guidance(self, batch: TextBatch) -> Tensor:
        if self.guide is None:
            raise InputError(
                "the attention of this model is another model's, given for the texts of its corpus "
                "alone: it reads them through `test` or `predict`, and no raw text."
            )
        return self.guide(batch)


class GuidedFlatClassifier(Guided, FlatClassifier):
    """A flat classifier whose attention over words is given."""


class GuidedHierarchicalClassifier(Guided, HierarchicalClassifier):
    """A hierarchical classifier whose attention over sentences is given."""
