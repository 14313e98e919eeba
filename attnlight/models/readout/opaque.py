"""Readouts that are not affine in attention: the model reads each candidate attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.functional import opaque_adversary, permuted_weights
from attnlight.functional.readout.heads import CandidateReadout, head_readout
from attnlight.functional.readout.opaque import (
    erase_each_opaque,
    first_flip_opaque,
    readout_gradient,
)
from attnlight.models.readout.base import Readout


class OpaqueReadout(Readout):
    """Logits are what the model's `readout` says: each answer is candidate attentions to read."""

    # Of what `by_head` gives: the readout whose heads are rows here, and attentions (R, K, N) of
    # these to logits (R, K, C).
    _whole: OpaqueReadout | None = None
    _alone: Callable[[Tensor], Tensor] | None = None
    _slope: Tensor | None = None

    @override
    def candidates(self, attentions: Tensor) -> Tensor:
        if self._alone is not None:
            return self._alone(attentions.squeeze(1))
        return self.model.readout(self.output, attentions.to(self.output.weights.dtype)).double()

    @override
    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        output, heads = self.output, self.output.weights.shape[1]
        texts = output.rows * output.rows.new_tensor([1, 0])
        shuffled = permuted_weights(output.weights, output.mask, texts, draws, seed)
        each = torch.eye(heads if heads > 1 else 0, dtype=torch.bool, device=shuffled.device)
        own, first = output.weights.unsqueeze(2), shuffled[:, :, :head_draws]
        alone = (
            self.model.readout(output, torch.where(head[:, None, None], first, own))
            for head in each
        )
        return self.model.readout(output, shuffled), alone

    @override
    def erase(self) -> Tensor:
        weights = self.head_weights.to(self.output.weights.dtype)
        return erase_each_opaque(
            self._candidates.read, weights, self.empty, self.output.mask, self.logits
        )

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        weights, mask = self.head_weights.to(self.output.weights.dtype), self.output.mask
        return first_flip_opaque(
            self._candidates.read, weights, self.empty, mask, self.logits, orders
        )

    @override
    def gradient(self) -> Tensor:
        if self._slope is None and self._whole is not None:
            self._slope = self._whole.gradient().flatten(0, 1).unsqueeze(1)
        elif self._slope is None:
            # As in `search`.
            with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
                output = self.output.apply(torch.clone)
                self._slope = readout_gradient(
                    partial(self.model.readout, output), output.weights, output.mask
                )
        return self._slope

    @override
    def worst_case(
        self, epsilon: float, found: Tensor | None = None, programs: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        output, source = self.output, partial(self.model.readout, self.output)
        adversary, js = opaque_adversary(
            output.weights, source, output.mask, epsilon, found, self._part
        )
        return adversary, js, torch.full_like(js, torch.nan)

    @override
    def by_head(self) -> OpaqueReadout:
        source, weights = partial(self.model.readout, self.output), self.output.weights
        alone = head_readout(source, weights)
        empty = alone(torch.zeros_like(weights).flatten(0, 1).unsqueeze(1)).squeeze(1)
        heads = OpaqueReadout(self.batch, self._rows_of_heads(None, empty), self.model)
        heads._whole, heads._alone = self, alone
        heads._candidates = CandidateReadout(source, weights, self._part, by_head=True)
        return heads

    def _part(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """The readout of rows (r,) long alone, of which tests ask more than of others."""
        texts = torch.isin(self.batch.index, self.output.rows[rows, 0])
        return partial(self.model.readout, replace(self.output, layers=None).select(texts, rows))

    @cached_property
    def _candidates(self) -> CandidateReadout:
        """Reads attentions (E, H, N) of rows (E,)."""
        source = partial(self.model.readout, self.output)
        return CandidateReadout(source, self.output.weights, self._part)
