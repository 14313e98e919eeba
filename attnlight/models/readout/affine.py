"""Readouts that are affine in attention: all is algebra on weights and item logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionOutput
from attnlight.functional import (
    first_flip,
    minimal_flip_set,
    permuted_logits,
    read,
    weight_gradient,
    worst_case_attention,
    worst_case_js,
)
from attnlight.functional.attribution.leave_one_out import last_places
from attnlight.functional.erasure.erase import each_erased, renormalize, weighted_items
from attnlight.functional.readout.heads import own_attention, own_items
from attnlight.models.readout.base import Readout

# Rows of like length that are measured together; so few rows, as classifiers have, are not worth
# taking apart.
_ROWS, _FEW = 512, 128


class AffineReadout(Readout):
    """Logits are the sum of weights times item logits: all is algebra, without the model."""

    @property
    def items(self) -> Tensor:
        """Item logits (R, H, N, C)."""
        assert self.output.item_logits is not None
        return self.output.item_logits

    @cached_property
    def _terms(self) -> Tensor:
        return weighted_items(self.output.weights, self.items, self.output.mask)

    @cached_property
    @override
    def logits(self) -> Tensor:
        return renormalize(self._terms.sum(2, keepdim=True), self.output.bias).squeeze(1)

    @property
    @override
    def by_programs(self) -> bool:
        return self.items.shape[-1] > 2

    @override
    def candidates(self, attentions: Tensor) -> Tensor:
        return read(attentions.double(), self.items.double())

    @override
    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        weights, items = self.output.weights, self.items
        texts = self.output.rows * self.output.rows.new_tensor([1, 0])
        drawn = self.output.mask, texts, draws, seed
        if weights.shape[1] == 1:
            return permuted_logits(weights, items, *drawn), ()
        parts = permuted_logits(weights, items, *drawn, by_head=True)
        own = (weights.unsqueeze(-2) @ items).squeeze(-2)  # (R, H, C)
        others = (own.sum(1, keepdim=True) - own).unsqueeze(2)
        return parts.sum(1), (parts[:, :, :head_draws] + others).unbind(1)

    @override
    def erase(self) -> Tensor:
        return each_erased(self._terms, self.empty, self.output.mask)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        return first_flip(self.output.weights, self.items, self.empty, self.output.mask, orders)

    @override
    def minimal_flips(self) -> tuple[Tensor, Tensor]:
        return minimal_flip_set(self.output.weights, self.items, self.empty, self.output.mask)

    @override
    def gradient(self) -> Tensor:
        output = self.output
        return weight_gradient(output.weights, self.items, output.bias, output.mask)

    @override
    def worst_case(
        self, epsilon: float, found: Tensor | None = None, programs: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = self.output
        return worst_case_attention(
            output.weights, self.items, output.mask, epsilon, found, programs
        )

    @override
    def worst_case_curve(self, epsilons: Sequence[float]) -> Tensor | None:
        if self.items.shape[1] > 1 or self.items.shape[-1] > 2:
            return None
        grid = torch.tensor(epsilons, dtype=torch.float64, device=self.items.device)
        return worst_case_js(self.output.weights[:, 0], self.items[:, 0], self.output.mask, grid)

    @override
    def by_head(self) -> AffineReadout:
        own, reach = own_attention(self.output.weights, self.output.mask)
        items = own_items(own, self.items, reach)
        logits = (self.head_weights.unsqueeze(-2) @ self.items.double()).squeeze(-2)  # (R, H, C)
        share = self.empty.double().expand(len(logits), -1).unsqueeze(1) / logits.shape[1]
        empty = (logits.sum(1, keepdim=True) - logits + share).flatten(0, 1)
        output = self._rows_of_heads(items.unsqueeze(1), empty)
        return AffineReadout(self.batch, output, self.model)

    @override
    def _source(self, output: AttentionOutput) -> Tensor:
        assert output.item_logits is not None
        return output.item_logits

    @override
    def _of_like_length(self) -> tuple[list[Readout], Tensor | None]:
        if len(self.lengths) <= _FEW:
            return [self], None
        ends = last_places(self.output.mask) + 1
        order = ends.argsort(stable=True)
        # Without the padding that longer rows ask for.
        cuts = [(rows, int(ends[rows].max().clamp(min=1))) for rows in torch.split(order, _ROWS)]
        return [self._trimmed(rows, items) for rows, items in cuts], order

    def _trimmed(self, rows: Tensor, items: int) -> AffineReadout:
        """The readout of rows (r,) long, of their first items."""
        output = self.output
        trimmed = replace(
            output,
            rows=output.rows[rows],
            logits=output.logits[rows],
            weights=output.weights[rows, :, :items],
            item_logits=self.items[rows, :, :items],
            bias=output.bias if output.bias.ndim == 1 else output.bias[rows],
            mask=output.mask[rows, :items],
        )
        empty = self.empty if self.empty.ndim == 1 else self.empty[rows]
        return AffineReadout(self.batch, trimmed, self.model, empty)
