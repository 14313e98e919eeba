"""What tests ask of the readout of a batch, whether it is affine in attention or not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional import search_adversary
from attnlight.functional.ranking import ranking

SCORES = ("attention", "gradient", "gradient_x_attention")
Gradient = Literal["signed", "absolute"]
Columns = Callable[["Readout"], Mapping[str, Tensor]]


class Readout(ABC):
    """From attention over R rows, H heads and N items to logits of C classes.

    An affine one answers by algebra on item logits, an opaque one asks the model's `readout`.

    Attributes:
        batch: The texts.
        output: What the model said of them.
        model: The model.
        empty: Logits where no attention is left, (C,) or (R, C); by default the bias.
        lengths: Items of each row, (R,).
    """

    def __init__(
        self,
        batch: TextBatch,
        output: AttentionOutput,
        model: AttentionModel,
        empty: Tensor | None = None,
    ) -> None:
        self.batch, self.output, self.model = batch, output, model
        self.empty = output.bias if empty is None else empty
        self.lengths = output.mask.sum(-1)

    @property
    @abstractmethod
    def logits(self) -> Tensor:
        """Logits of the model's own attention, (R, C) float64."""

    @property
    @abstractmethod
    def by_programs(self) -> bool:
        """Whether `worst_case` solves linear programs, which take milliseconds for each row."""

    @abstractmethod
    def candidates(self, attentions: Tensor) -> Tensor:
        """Logits (R, K, C) float64 of K candidate attentions (R, H, K, N)."""

    @abstractmethod
    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        """Logits under random shuffles of the attention, the same for all rows of a text.

        Returns:
            (R, draws, C) with all heads shuffled alike and, of several heads, (R, head_draws, C)
            with each of them shuffled alone, in the dtype of the model.
        """

    @abstractmethod
    def erase(self) -> Tensor:
        """Logits after erasing each item alone, (R, N, C) float64; off the mask meaningless."""

    @abstractmethod
    def first_flips(self, orders: Tensor) -> Tensor:
        """Items of orders (R, K, N) erased when the decision first changes, (R, K); -1 if never."""

    @abstractmethod
    def minimal_flips(self) -> tuple[Tensor, Tensor] | None:
        """Size (R,), -1 if none, and members (R, N) of the smallest flip set; None if unknown."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """Gradient of the winning class's probability by the weights, (R, H, N) float64."""

    @abstractmethod
    def worst_case(
        self, epsilon: float, found: Tensor | None = None, programs: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of the largest JS that moves the prediction by at most epsilon, head by head.

        Args:
            epsilon: Largest total variation distance between the predictions.
            found: Attention (R, H, N) that was found otherwise, such as by `search`.
            programs: Solve linear programs, where `by_programs`.

        Returns:
            Adversaries (R, H, N), their JS in nats (R, H), and what no JS exceeds, (R, H), NaN
            where that is unknown; float64.
        """

    @abstractmethod
    def worst_case_curve(self, epsilons: Sequence[float]) -> Tensor | None:
        """JS (R, K) of the worst case at each tolerance; None where it is not known exactly."""

    @abstractmethod
    def by_head(self) -> Readout:
        """Each head by itself, the others held: R H rows of one head, those of a row together.

        It is for candidates, erasing and gradients; `permute`, `worst_case` and `search` are of each
        head by themselves.
        """

    @abstractmethod
    def _source(self, output: AttentionOutput) -> Tensor | Callable[[Tensor], Tensor]:
        """What `search_adversary` reads candidates of an output with."""

    @cached_property
    def head_weights(self) -> Tensor:
        """Attention (R, H, N) float64, 0 off the mask."""
        return self.output.weights.double().masked_fill(~self.output.mask.unsqueeze(1), 0.0)

    @cached_property
    def weights(self) -> Tensor:
        """Attention, mean over heads, (R, N) float64, 0 off the mask."""
        return self.head_weights.mean(1)

    def rankings(self, gradient: Gradient) -> Tensor:
        """Orders by each of `SCORES`, (R, 3, N); with several heads by the scores' means."""
        slope = self.gradient()
        slope = slope.abs() if gradient == "absolute" else slope
        product = (slope * self.head_weights).mean(1)
        scores = torch.stack([self.weights, slope.mean(1), product], dim=1)
        masks = self.output.mask.repeat_interleave(len(SCORES), dim=0)
        return ranking(scores.flatten(0, 1), masks).view(scores.shape)

    def undefined(self, fewest: int) -> Tensor:
        """Rows (R,) with fewer items than `fewest`, or with weights or logits that are no numbers."""
        held = [self.logits, self.output.logits, self.weights.sum(-1, keepdim=True)]
        return (self.lengths < fewest) | ~torch.cat(held, dim=-1).isfinite().all(-1)

    def search(self, epsilon: float, **options: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Adversaries (R, H, N) and JS (R, H) of `search_adversary`, with its options."""
        # Under inference mode the output's own tensors could be in no graph. An RNN of a readout
        # has a backward pass in evaluation mode without cuDNN alone.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            output = self.output.apply(torch.clone)
            source = self._source(output)
            return search_adversary(
                output.weights, source, output.mask, epsilon, output.rows, **options
            )

    def with_empty(self, logits: Tensor) -> Readout:
        """The same with other logits where no attention is left, (C,) or (R, C)."""
        return type(self)(self.batch, self.output, self.model, logits)

    def select(self, rows: Tensor) -> Readout:
        """The readout of the rows where `rows` (R,) bool holds, and of their texts."""
        texts = torch.isin(self.batch.index, self.output.rows[rows, 0])
        empty = self.empty if self.empty.ndim == 1 else self.empty[rows]
        output = self.output.select(texts, rows)
        return type(self)(self.batch.select(texts), output, self.model, empty)

    def blocks(self, weights: int) -> Iterator[Readout]:
        """Readouts of rows that follow each other, of so many weights (rows x heads x items)."""
        size = max(1, weights // max(1, self.output.weights[:1].numel()))
        if len(self.lengths) <= size:
            yield self
            return
        places = torch.arange(len(self.lengths), device=self.lengths.device)
        for start in range(0, len(places), size):
            yield self.select((places >= start) & (places < start + size))

    def columns(self, whole: Columns, alone: Columns) -> dict[str, Tensor]:
        """Columns (R,) and, of several heads, `<column>_by_head` (R, H), rows of like length together.

        Args:
            whole: From the readout of some rows to their columns (r,).
            alone: The same from these rows' heads by themselves, as `by_head` gives them.
        """
        parts, order = self._of_like_length()
        found = []
        for part in parts:
            columns, heads = dict(whole(part)), part.output.weights.shape[1]
            if heads > 1:
                by_head = alone(part.by_head()).items()
                columns |= {f"{name}_by_head": values.view(-1, heads) for name, values in by_head}
            found.append(columns)
        if order is None:
            return found[0]
        back = order.argsort()
        return {name: torch.cat([part[name] for part in found])[back] for name in found[0]}

    def _of_like_length(self) -> tuple[list[Readout], Tensor | None]:
        """Readouts of rows of like length and these rows (R,); None: of all rows in their order."""
        return [self], None

    def _rows_of_heads(self, item_logits: Tensor | None, empty: Tensor) -> AttentionOutput:
        """An output of one head whose R H rows are the heads of this one's, given what is of each."""
        output, heads = self.output, self.output.weights.shape[1]
        each = partial(torch.repeat_interleave, repeats=heads, dim=0)
        return replace(
            output,
            rows=each(output.rows),
            logits=each(output.logits),
            weights=output.weights.flatten(0, 1).unsqueeze(1),
            item_logits=item_logits,
            bias=empty,
            mask=each(output.mask),
        )
