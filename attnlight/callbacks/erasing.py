"""What the tests that erase items ask of an output, whatever the readout after attention is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.parts import readouts_of_parts
from attnlight.functional import first_flip, minimal_flip_set, weight_gradient
from attnlight.functional.attribution.leave_one_out import last_places
from attnlight.functional.erasure.erase import each_erased, settle, weigh
from attnlight.functional.ranking import ranking
from attnlight.functional.readout.heads import (
    Candidates,
    HeadCandidates,
    PartReadout,
    head_readout,
    own_attention,
    own_items,
)
from attnlight.functional.readout.opaque import first_flip_read, read_each, readout_gradient

SCORES = ("attention", "gradient", "gradient_x_attention")
Gradient = Literal["signed", "absolute"]
# Rows of like length that are measured together.
_ROWS = 512
# So few rows, as classifiers have, are not worth taking apart.
_FEW = 128


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

    @abstractmethod
    def alone(self) -> Erasure:
        """Each head by itself, the others held: R H rows of one head, those of a row together."""

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
        self._items, self._terms = item_logits, terms

    @override
    def gradient(self) -> Tensor:
        output = self.output
        return weight_gradient(output.weights, self._items, output.bias, output.mask)

    @override
    def each(self) -> Tensor:
        return each_erased(self._terms, self.bias, self.output.mask)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        output = self.output
        return first_flip(output.weights, self._items, self.bias, output.mask, orders)

    @override
    def minimal(self) -> tuple[Tensor, Tensor]:
        return minimal_flip_set(self.output.weights, self._items, self.bias, self.output.mask)

    @override
    def alone(self) -> AffineErasure:
        own, reach = own_attention(self.output.weights, self.output.mask)
        items = own_items(own, self._items, reach)
        heads = self._items.shape[1]
        logits = (self._of_heads.unsqueeze(-2) @ self._items.double()).squeeze(-2)  # (R, H, C)
        share = self.bias.double().expand(len(logits), -1).unsqueeze(1) / heads
        empty = (logits.sum(1, keepdim=True) - logits + share).flatten(0, 1)
        output = _rows_of_heads(self.output, items.unsqueeze(1), empty)
        return AffineErasure(output, items.unsqueeze(1), empty)


class ReadoutErasure(Erasure):
    """Erasure by reading one candidate attention for each item, where the readout is not affine."""

    def __init__(
        self,
        output: AttentionOutput,
        model: AttentionModel,
        bias: Tensor,
        part: PartReadout | None = None,
    ) -> None:
        super().__init__(output, bias, output.logits.double())
        self._model = model
        self._part = part
        self._slope: Tensor | None = None

    @override
    def gradient(self) -> Tensor:
        if self._slope is None:
            self._slope = self._gradient()
        return self._slope

    def _gradient(self) -> Tensor:
        # Under inference mode the output's own tensors could be in no graph. An RNN of a readout
        # has a backward pass in evaluation mode without cuDNN alone.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            output = self.output.apply(torch.clone)

            def readout(weights: Tensor) -> Tensor:
                return self._model.readout(output, weights)

            return readout_gradient(readout, output.weights, output.mask)

    @override
    def each(self) -> Tensor:
        weights = self._of_heads.to(self.output.weights.dtype)
        return read_each(self._ask, weights, self.bias, self.output.mask, self.logits)

    @override
    def first_flips(self, orders: Tensor) -> Tensor:
        weights = self._of_heads.to(self.output.weights.dtype)
        return first_flip_read(self._ask, weights, self.bias, self.output.mask, self.logits, orders)

    @override
    def minimal(self) -> None:
        return None

    @override
    def alone(self) -> _ReadoutAlone:
        return _ReadoutAlone(self, self._readout)

    def _readout(self, weights: Tensor) -> Tensor:
        return self._model.readout(self.output, weights)

    def _ask(self, rows: Tensor, attentions: Tensor) -> Tensor:
        """Logits (E, C) of attentions (E, H, N) of rows (E,)."""
        return Candidates(self._readout, self.output.weights, self._part).read(rows, attentions)


class _ReadoutAlone(ReadoutErasure):
    """Each head of another erasure by itself, as `Erasure.alone` says."""

    def __init__(self, whole: ReadoutErasure, readout: Callable[[Tensor], Tensor]) -> None:
        self._read = head_readout(readout, whole.output.weights)
        nothing = torch.zeros_like(whole.output.weights).flatten(0, 1).unsqueeze(1)
        empty = self._read(nothing).squeeze(1)
        super().__init__(_rows_of_heads(whole.output, None, empty), whole._model, empty)
        self._whole = whole
        self._candidates = HeadCandidates(readout, whole.output.weights, whole._part)

    @override
    def _gradient(self) -> Tensor:
        return self._whole.gradient().flatten(0, 1).unsqueeze(1)

    @override
    def _readout(self, weights: Tensor) -> Tensor:
        return self._read(weights.squeeze(1))

    @override
    def _ask(self, rows: Tensor, attentions: Tensor) -> Tensor:
        return self._candidates.read(rows, attentions.squeeze(1))


def _rows_of_heads(
    output: AttentionOutput, item_logits: Tensor | None, bias: Tensor
) -> AttentionOutput:
    """An output of one head whose R H rows are the heads of another's, given what is of each."""
    heads = output.weights.shape[1]

    def each(values: Tensor) -> Tensor:
        return values.repeat_interleave(heads, dim=0)

    return replace(
        output,
        rows=each(output.rows),
        logits=each(output.logits),
        weights=output.weights.flatten(0, 1).unsqueeze(1),
        item_logits=item_logits,
        bias=bias,
        mask=each(output.mask),
    )


def with_heads(
    erased: Erasure,
    measure: Callable[[Erasure], Mapping[str, Tensor]],
    measure_alone: Callable[[Erasure], Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """Columns (R,) of erasure from all heads and, of several, `<column>_by_head` (R, H) of each."""
    columns = dict(measure(erased))
    heads = erased.output.weights.shape[1]
    if heads == 1:
        return columns
    alone = measure_alone(erased.alone())
    shape = (len(erased.lengths), heads)
    return columns | {f"{name}_by_head": column.view(shape) for name, column in alone.items()}


def by_length(
    output: AttentionOutput, measure: Callable[[AttentionOutput, Tensor], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Columns (R,) or (R, K) that are measured on rows of like length together.

    Where the readout is affine, without the padding that longer rows ask for.

    Args:
        output: What a model said of a batch.
        measure: From an output of some rows and their numbers (r,) to their columns.
    """
    whole = torch.arange(len(output.rows), device=output.rows.device)
    if output.item_logits is None or len(whole) <= _FEW:
        return dict(measure(output, whole))
    ends = last_places(output.mask) + 1
    order = ends.argsort(stable=True)
    parts = []
    for rows in torch.split(order, _ROWS):
        items = int(ends[rows].max().clamp(min=1)) if len(rows) else output.mask.shape[1]
        parts.append(measure(_trimmed(output, rows, items), rows))
    back = order.argsort()
    return {name: torch.cat([part[name] for part in parts])[back] for name in parts[0]}


def _trimmed(output: AttentionOutput, rows: Tensor, items: int) -> AttentionOutput:
    """Rows (r,) of an output with item logits, of their first items."""
    assert output.item_logits is not None
    return replace(
        output,
        rows=output.rows[rows],
        logits=output.logits[rows],
        weights=output.weights[rows, :, :items],
        item_logits=output.item_logits[rows, :, :items],
        bias=output.bias if output.bias.ndim == 1 else output.bias[rows],
        mask=output.mask[rows, :items],
    )


def erasure(
    batch: TextBatch,
    output: AttentionOutput,
    model: AttentionModel,
    empty_logits: Tensor | None = None,
) -> Erasure:
    """Erasure as the output allows it.

    Args:
        batch: The texts.
        output: What the model said of a batch.
        model: The model, which is asked where the readout is not affine.
        empty_logits: Logits where nothing is left, (C,) or (R, C); None: the bias.
    """
    bias = output.bias if empty_logits is None else empty_logits
    if output.item_logits is None:
        part = readouts_of_parts(batch, output, model)
        return ReadoutErasure(output, model, bias, part)
    return AffineErasure(output, output.item_logits, bias)
