"""Readouts that are not affine in attention: the model evaluates each candidate attention."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.functional import opaque_adversary, permuted_weights
from attnlight.functional.attribution.weight_gradient import Target, target_class
from attnlight.functional.readout.heads import CandidateReadout, head_readout
from attnlight.functional.readout.opaque import (
    first_flip_opaque,
    keep_items_opaque,
    readout_gradient,
)
from attnlight.models.readout.base import EVALUATIONS, Readout


class OpaqueReadout(Readout):
    """Logits come from the model's `readout`, which evaluates candidate attentions."""

    # Set by `by_head`: the readout whose heads are the rows of this one, and the function from
    # attentions (R, K, N) of these rows to logits (R, K, C).
    _all_heads: "OpaqueReadout | None" = None
    _read_head: Callable[[Tensor], Tensor] | None = None
    _gradients: Mapping[Target, Tensor] = MappingProxyType({})

    @override
    def candidates(self, attentions: Tensor) -> Tensor:
        if self._read_head is not None:
            return self._read_head(attentions.squeeze(1))
        return self.model.readout(self.output, attentions.to(self.output.weights.dtype)).double()

    @override
    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        output, heads = self.output, self.output.weights.shape[1]
        texts = output.rows * output.rows.new_tensor([1, 0])
        shuffled = permuted_weights(output.weights, output.mask, texts, draws, seed)
        each = torch.eye(heads if heads > 1 else 0, dtype=torch.bool, device=shuffled.device)
        original, first = output.weights.unsqueeze(2), shuffled[:, :, :head_draws]
        head_logits = (
            self.model.readout(output, torch.where(head[:, None, None], first, original))
            for head in each
        )
        return self.model.readout(output, shuffled), head_logits

    @override
    def erase(self) -> Tensor:
        weights, mask = self.head_weights.to(self.output.weights.dtype), self.output.mask
        erased = self.logits.unsqueeze(1).repeat(1, mask.shape[1], 1)
        row, item = mask.nonzero().unbind(-1)
        kept = torch.arange(mask.shape[1], device=mask.device) != item[:, None, None]
        found = keep_items_opaque(self._candidates.read, weights, self.empty, kept, row)
        erased[row, item] = found.squeeze(1)
        return erased

    @override
    def keep(self, rows: Tensor, kept: Tensor) -> Tensor:
        weights = self.head_weights.to(self.output.weights.dtype)
        return keep_items_opaque(self._candidates.read, weights, self.empty, kept, rows)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        weights, mask = self.head_weights.to(self.output.weights.dtype), self.output.mask
        return first_flip_opaque(
            self._candidates.read, weights, self.empty, mask, self.logits, orders
        )

    @override
    def gradient(self, target: Target = None) -> Tensor:
        if self._all_heads is not None:
            return self._all_heads.gradient(target).flatten(0, 1).unsqueeze(1)
        if target not in self._gradients:
            found = readout_gradient(
                self.model,
                self.output,
                lambda z: z.double().softmax(-1).gather(-1, target_class(z, target)[:, None]),
            )
            found = found.double().masked_fill(~self.output.mask.unsqueeze(1), 0.0)
            self._gradients = {**self._gradients, target: found}
        return self._gradients[target]

    @override
    def worst_case(
        self,
        epsilon: float,
        candidates: Tensor | None = None,
        programs: bool = True,
        evaluations: int | None = EVALUATIONS,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # As in `search`.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            output = self.output.apply(torch.clone)
            readout = type(self)(self.batch, output, self.model, self._empty)
            adversary, js = opaque_adversary(
                output.weights,
                partial(self.model.readout, output),
                output.mask,
                epsilon,
                candidates,
                readout._readout_of,
                rows=output.rows,
                seed=seed,
                programs=programs,
                evaluations=None if self.cheap else evaluations,
            )
        return adversary, js, torch.full_like(js, torch.nan)

    @override
    def by_head(self) -> "OpaqueReadout":
        source, weights = partial(self.model.readout, self.output), self.output.weights
        read_head = head_readout(source, weights)
        heads = OpaqueReadout(self.batch, self._rows_of_heads(None, None), self.model)
        heads._all_heads, heads._read_head = self, read_head
        classes = self.output.logits.shape[-1]
        heads._candidates = CandidateReadout(source, weights, self._readout_of, True, classes)
        return heads

    def _readout_of(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """The model's readout of rows (r,) long alone, for tests that evaluate some rows again."""
        texts = torch.isin(self.batch.index, self.output.rows[rows, 0])
        return partial(self.model.readout, replace(self.output, layers=None).select(texts, rows))

    @cached_property
    def _candidates(self) -> CandidateReadout:
        """Evaluates attentions (E, H, N) of rows (E,)."""
        source = partial(self.model.readout, self.output)
        classes = self.output.logits.shape[-1]
        return CandidateReadout(source, self.output.weights, self._readout_of, False, classes)
