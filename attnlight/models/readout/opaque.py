"""Readouts that are not affine in attention: the model reads each candidate attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.functional import blackbox_adversary, permuted_weights
from attnlight.functional.readout.heads import Candidates, head_readout
from attnlight.functional.readout.opaque import first_flip_read, read_each, readout_gradient
from attnlight.models.readout.base import Readout


class OpaqueReadout(Readout):
    """Logits are what the model's `readout` says: each answer is candidate attentions to read."""

    _slope: Tensor | None = None

    @override
    def candidates(self, attentions: Tensor) -> Tensor:
        return self.model.readout(self.output, attentions.to(self.output.weights.dtype)).double()

    @override
    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        output, heads = self.output, self.output.weights.shape[1]
        texts = output.rows * output.rows.new_tensor([1, 0])
        shuffled = permuted_weights(output.weights, output.mask, texts, draws, seed)

        def each_alone() -> Iterator[Tensor]:
            first = shuffled[:, :, :head_draws]
            for head in range(heads):
                wide = output.weights.unsqueeze(2).repeat(1, 1, first.shape[2], 1)
                wide[:, head] = first[:, head]
                yield self.model.readout(output, wide)

        return self.model.readout(output, shuffled), each_alone() if heads > 1 else ()

    @override
    def erase(self) -> Tensor:
        weights = self.head_weights.to(self.output.weights.dtype)
        return read_each(self._candidates.read, weights, self.empty, self.output.mask, self.logits)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        weights, mask = self.head_weights.to(self.output.weights.dtype), self.output.mask
        return first_flip_read(
            self._candidates.read, weights, self.empty, mask, self.logits, orders
        )

    @override
    def gradient(self) -> Tensor:
        if self._slope is None:
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
        adversary, js = blackbox_adversary(
            output.weights, source, output.mask, epsilon, found, self._part
        )
        return adversary, js, torch.full_like(js, torch.nan)

    @override
    def by_head(self) -> OpaqueReadout:
        return _OpaqueHeads(self)

    def _part(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """The readout of rows (r,) long alone, of which tests ask more than of others."""
        texts = torch.isin(self.batch.index, self.output.rows[rows, 0])
        return partial(self.model.readout, replace(self.output, layers=None).select(texts, rows))

    @cached_property
    def _candidates(self) -> Candidates:
        """Reads attentions (E, H, N) of rows (E,)."""
        source = partial(self.model.readout, self.output)
        return Candidates(source, self.output.weights, self._part)


class _OpaqueHeads(OpaqueReadout):
    """Each head of another opaque readout by itself, the others held."""

    def __init__(self, whole: OpaqueReadout) -> None:
        source, weights = partial(whole.model.readout, whole.output), whole.output.weights
        self._read = head_readout(source, weights)
        self._candidates = Candidates(source, weights, whole._part, by_head=True)
        self._whole = whole
        nothing = torch.zeros_like(weights).flatten(0, 1).unsqueeze(1)
        output = whole._rows_of_heads(None, self._read(nothing).squeeze(1))
        super().__init__(whole.batch, output, whole.model)

    @override
    def candidates(self, attentions: Tensor) -> Tensor:
        return self._read(attentions.squeeze(1))

    @override
    def gradient(self) -> Tensor:
        return self._whole.gradient().flatten(0, 1).unsqueeze(1)
