"""Models whose attention is given, as to the guided MLP of Wiegreffe and Pinter (2019), 3.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import erase_each, reencode
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.classifier import FlatClassifier
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.tagger import SelfAttentionTagger, on_grid

Guide = Callable[[TextBatch], Tensor]
# Columns of `TextBatch.extras` that say where what is left of a sentence stood.
_TEXT, _PLACE = "text of the batch", "place in the text"


class GivenAttention(nn.Module):
    """A model that asks a guide what to attend to.

    Attributes:
        guide: Attention (R, H, N) for a batch of texts, told by their dataset index; None before
            there is a corpus.
    """

    guide: Guide | None = None

    def _guidance(self, batch: TextBatch) -> Tensor:
        if self.guide is None:
            raise InputError(
                "the attention of this model is another model's, given for the texts of its corpus "
                "alone: it reads them through `test` or `predict`, and no raw text."
            )
        return self.guide(batch)


class Guided(GivenAttention):
    """Take the weights of the last attention from a guide.

    A subclass adds the network. Build it so that it reads each item alone, a classifier with the
    encoder `average` or `none`, and with attention `uniform`, which has no parameter that would never
    be trained.
    """

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
        output: AttentionOutput = super().forward(batch, weights, embeddings)
        return output

    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (B, N, C) without each item, NaN off the mask and where nothing is left.

        A guide knows whole texts alone: what it gave the others is renormalised. Since items are
        read alone, nothing else changes.
        """
        items = output.item_logits
        if items is None:  # of a training step
            items = self._classify(output.states).unsqueeze(1)  # type: ignore[operator]
        logits = erase_each(output.weights, items, output.bias, output.mask)
        alone = output.mask.sum(-1, keepdim=True) < 2
        return logits.masked_fill((~output.mask | alone).unsqueeze(-1), torch.nan)


class GuidedFlatClassifier(Guided, FlatClassifier):
    """A flat classifier whose attention over words is given."""


class GuidedHierarchicalClassifier(Guided, HierarchicalClassifier):
    """A hierarchical classifier whose attention over sentences is given."""


class GuidedSelfAttentionTagger(GivenAttention, SelfAttentionTagger):
    """A tagger that takes the attention of each token in the last layer from a guide.

    Build it with all of `uniform_heads`: it then has no queries and keys in the last layer, which
    would never be trained. With none of them, what is given is a prior: attention is proportional
    to it and to the exponential of the model's own scores. A weight below the smallest normal number
    counts as that.
    """

    @override
    def _attend(self, batch: TextBatch, normed: Tensor, mask: Tensor) -> Tensor:
        text, position = batch.instances().nonzero().unbind(-1)
        given = on_grid(self._guidance(batch), text, position, mask)
        if not self.attention.learned:
            return given.to(normed.dtype)
        return self.attention.weights(normed, mask, prior=given)

    @torch.no_grad()
    def leave_one_out(self, batch: TextBatch, output: AttentionOutput, budget: int) -> Tensor:
        """Logits (R, N, C) without each item, as `reencode` gives them.

        A guide knows whole sentences alone: what it gave the items that are left is renormalised.
        """
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        given, guide = (
            on_grid(self._guidance(batch), text, position, batch.attendable()),
            self.guide,
        )
        places = torch.arange(batch.tokens.shape[1], device=text.device).expand_as(batch.tokens)
        texts = torch.arange(len(batch), device=text.device)[:, None].expand_as(batch.tokens)
        marked = replace(batch, extras=batch.extras | {_TEXT: texts, _PLACE: places})

        def left(shortened: TextBatch) -> Tensor:
            short, place = shortened.instances().nonzero().unbind(-1)
            whole = shortened.extras[_TEXT][short, place]
            rows = given[whole, :, shortened.extras[_PLACE][short, place]]  # (r, H, N)
            kept = shortened.extras[_PLACE][short].unsqueeze(1).expand(-1, rows.shape[1], -1)
            weights = rows.gather(-1, kept) * shortened.attendable()[short].unsqueeze(1)
            return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)

        self.guide = left
        try:
            return reencode(self, marked, output, budget)
        finally:
            self.guide = guide
