"""The affine readout of a batch, from which tests compute their quantities by algebra."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, cast

import torch
from torch import Tensor

from attnlight.batch import MANY_CLASSES, AttentionModel, AttentionOutput, HasReadoutCost, TextBatch
from attnlight.functional import (
    erase_each,
    first_flip,
    max_js,
    minimal_flip_set,
    permuted_logits,
    read,
    search_adversary,
    total_variation,
    weight_gradient,
    worst_case_attention,
    worst_case_js,
)
from attnlight.functional.attribution.weight_gradient import Target
from attnlight.functional.erasure.erase import keep_items, renormalize, weighted_items
from attnlight.functional.ranking import ranking
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits
from attnlight.functional.readout.instances import empty_logits, texts_of_rows
from attnlight.probing.leave_one_out import last_places

SCORES = ("attention", "gradient", "gradient_x_attention")
Gradient = Literal["signed", "absolute"]
Columns = Callable[["Readout"], Mapping[str, Tensor]]
# Rows of similar length that are measured together, and the largest batch that is not split.
_ROWS, _UNSPLIT_ROWS = 512, 128
# Elements of the predictions of many classes, which bound the rows that are measured at once.
_PREDICTED = 1 << 25
EVALUATIONS = 2000  # of a readout that may be costly, by default, in the search of a worst case


class Readout:
    """From attention over R rows, H heads and N items to logits of C classes.

    Logits are the sum of weights times item logits, so that the model is not called.
    `OpaqueReadout` is for models whose readout is not affine in attention.

    Attributes:
        batch: The texts.
        output: The model's output for them.
        model: The model.
        items: Item logits (R, H, N, C); an opaque readout has none.
        lengths: Number of items of each row, (R,).
        affine: Whether logits are affine in attention, so that there are item logits.
        cheap: `HasReadoutCost.cheap_readout` of the model.
        by_programs: Whether `worst_case` solves linear programs, which take milliseconds each.
    """

    def __init__(
        self,
        batch: TextBatch,
        output: AttentionOutput,
        model: AttentionModel,
        empty: Tensor | None = None,
    ) -> None:
        self.batch, self.output, self.model = batch, output, model
        given = output.bias if empty is None else empty
        self._empty = None if given is None else given.expand(len(output.rows), -1)
        self.items = cast("Tensor", output.item_logits)
        self.lengths = output.mask.sum(-1)
        self.affine = output.item_logits is not None
        self.cheap = isinstance(model, HasReadoutCost) and model.cheap_readout
        self.by_programs = not self.affine or output.logits.shape[-1] > 2

    @cached_property
    def empty(self) -> Tensor:
        """Logits of an empty context, (R, C): those given, the bias, or those of no weights."""
        if self._empty is None:
            nothing = torch.zeros_like(self.output.weights).unsqueeze(2)
            return self.candidates(nothing).squeeze(1)
        return self._empty

    @cached_property
    def logits(self) -> Tensor:
        """Logits of the original attention, (R, C) float64."""
        if self.output.item_logits is None:
            return self.output.logits.double()
        terms = weighted_items(self.output.weights, self.items, self.output.mask)
        bias = empty_logits(self.model, self.output)
        return renormalize(terms.sum(2, keepdim=True), bias).squeeze(1)

    @cached_property
    def head_weights(self) -> Tensor:
        """Attention (R, H, N) float64, 0 off the mask."""
        return self.output.weights.double().masked_fill(~self.output.mask.unsqueeze(1), 0.0)

    @cached_property
    def weights(self) -> Tensor:
        """Attention, mean over heads, (R, N) float64, 0 off the mask."""
        return self.head_weights.mean(1)

    def candidates(self, attentions: Tensor) -> Tensor:
        """Logits (R, K, C) float64 of K candidate attentions (R, H, K, N)."""
        return read(attentions.double(), self.items.double())

    def permute(self, draws: int, head_draws: int, seed: int) -> tuple[Tensor, Iterable[Tensor]]:
        """Logits under random permutations of the attention, the same for all rows of a text.

        Returns:
            (R, draws, C) with one permutation for all heads and, for several heads, (R, head_draws,
            C) with each head permuted alone, in the dtype of the model.
        """
        weights, items = self.output.weights, self.items
        texts = self.output.rows * self.output.rows.new_tensor([1, 0])
        drawn = self.output.mask, texts, draws, seed
        if weights.shape[1] == 1:
            return permuted_logits(weights, items, *drawn), ()
        parts = permuted_logits(weights, items, *drawn, by_head=True)
        original = (weights.unsqueeze(-2) @ items).squeeze(-2)  # (R, H, C)
        others = (original.sum(1, keepdim=True) - original).unsqueeze(2)
        return parts.sum(1), (parts[:, :, :head_draws] + others).unbind(1)

    def erase(self) -> Tensor:
        """Logits after erasing each item alone, (R, N, C) float64; arbitrary off the mask."""
        return erase_each(self.output.weights, self.items, self.empty, self.output.mask)

    def keep(self, rows: Tensor, kept: Tensor) -> Tensor:
        """Logits (r, K, C) float64 of rows (r,) long when only items of K sets (r, K, N) remain."""
        weights, mask = self.output.weights[rows], self.output.mask[rows]
        return keep_items(weights, self.items[rows], self.empty[rows], mask, kept)

    def first_flips(self, orders: Tensor) -> Tensor:
        """Items of orders (R, K, N) erased when the decision first changes, (R, K); -1 if never."""
        return first_flip(self.output.weights, self.items, self.empty, self.output.mask, orders)

    def minimal_flips(self) -> tuple[Tensor, Tensor] | None:
        """Size (R,), -1 if none, and members (R, N) of the smallest flip set; None if opaque."""
        if self.output.item_logits is None:
            return None
        return minimal_flip_set(self.output.weights, self.items, self.empty, self.output.mask)

    def gradient(self, target: Target = None) -> Tensor:
        """Gradient of the probability of `target_class` by the weights, (R, H, N) float64."""
        output = self.output
        bias = empty_logits(self.model, output)
        return weight_gradient(output.weights, self.items, bias, output.mask, target)

    def rankings(self, gradient: Gradient, target: Target = None) -> Tensor:
        """Orders by each of `SCORES`, (R, 3, N); with several heads by the scores' means."""
        gradients = self.gradient(target)
        gradients = gradients.abs() if gradient == "absolute" else gradients
        product = (gradients * self.head_weights).mean(1)
        scores = torch.stack([self.weights, gradients.mean(1), product], dim=1)
        masks = self.output.mask.repeat_interleave(len(SCORES), dim=0)
        return ranking(scores.flatten(0, 1), masks).view(scores.shape)

    def worst_case(
        self,
        epsilon: float,
        candidates: Tensor | None = None,
        programs: bool = True,
        evaluations: int | None = EVALUATIONS,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of maximum JS that moves the prediction by at most epsilon, head by head.

        Args:
            epsilon: Largest total variation distance between the predictions.
            candidates: Attention (R, H, N) to consider too, such as the result of `search`.
            programs: Solve linear programs, if `by_programs`.
            evaluations: As of `opaque_adversary`, for a readout that is neither affine nor cheap.
            seed: As of `opaque_adversary`.

        Returns:
            Worst-case attention (R, H, N), its JS in nats (R, H), and an upper bound of the JS
            (R, H), NaN where unknown; float64.
        """
        weights, mask = self.output.weights, self.output.mask
        return worst_case_attention(weights, self.items, mask, epsilon, candidates, programs)

    def worst_case_curve(self, epsilons: Sequence[float]) -> Tensor | None:
        """JS (R, K) of the worst case at each tolerance; None if there is no exact solution."""
        weights, items = self.output.weights, self.output.item_logits
        if items is None or items.shape[1] > 1 or items.shape[-1] > 2:
            return None
        grid = torch.tensor(epsilons, dtype=torch.float64, device=items.device)
        return worst_case_js(weights[:, 0], items[:, 0], self.output.mask, grid)

    def search(self, epsilon: float, **options: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Attention (R, H, N) and JS (R, H) of `search_adversary`, with its options."""
        # Tensors made under inference mode cannot be in a graph: clone them. cuDNN's RNNs have no
        # backward pass in evaluation mode.
        with torch.inference_mode(False), torch.backends.cudnn.flags(enabled=False):
            output = self.output.apply(torch.clone)
            items = output.item_logits
            source = partial(self.model.readout, output) if items is None else items
            return search_adversary(
                output.weights, source, output.mask, epsilon, output.rows, **options
            )

    def undefined(self, fewest: int) -> Tensor:
        """Rows (R,) with fewer items than `fewest`, or weights or logits that are not finite."""
        values = [self.logits, self.output.logits, self.weights.sum(-1, keepdim=True)]
        return (self.lengths < fewest) | ~torch.cat(values, dim=-1).isfinite().all(-1)

    def by_head(self) -> "Readout":
        """Each head alone, the others fixed: R H rows of one head, the heads of a row adjacent.

        For candidates, erasure and gradients; `permute`, `worst_case` and `search` treat each head
        alone themselves.
        """
        weights, reach = flatten_heads(self.output.weights, self.output.mask)
        items = flatten_item_logits(weights, self.items, reach)
        logits = (self.head_weights.unsqueeze(-2) @ self.items.double()).squeeze(-2)  # (R, H, C)
        head_bias = self.empty.double().unsqueeze(1) / logits.shape[1]
        empty = (logits.sum(1, keepdim=True) - logits + head_bias).flatten(0, 1)
        return Readout(self.batch, self._rows_of_heads(items.unsqueeze(1), empty), self.model)

    def tvd_by_head(self, attention: Tensor) -> Tensor:
        """TVD (R, H) of the predictions when attention (R, H, N) replaces one head at a time."""
        original, _ = flatten_heads(self.output.weights, self.output.mask)
        pairs = torch.stack([attention.flatten(0, 1), original], dim=1).unsqueeze(1)
        after, before = self.by_head().candidates(pairs).softmax(-1).unbind(1)
        return total_variation(after, before).reshape(attention.shape[:2])

    def max_js_by_head(self) -> Tensor:
        """Maximum JS (R, H) in nats that any attention of a head can have; NaN for a single item."""
        maximum = max_js(*flatten_heads(self.output.weights, self.output.mask))
        maximum = maximum.reshape(self.output.weights.shape[:2])
        return maximum.masked_fill((self.lengths < 2)[:, None], torch.nan)

    def joint_js(self, attention: Tensor, js: Tensor, epsilon: float) -> Tensor:
        """Mean JS (R,) over heads replaced in turn, as long as TVD of predictions is at most epsilon.

        The `attention` (R, H, N) of each head has the divergence `js` (R, H) from the original.
        """
        weights, total = self.output.weights.double(), torch.zeros_like(js[:, 0])
        original = self.candidates(weights.unsqueeze(2)).squeeze(1).softmax(-1)
        for head in range(js.shape[1]):
            candidate = weights.clone()
            candidate[:, head] = attention[:, head]
            # An adversary's TVD is often epsilon up to rounding.
            prediction = self.candidates(candidate.unsqueeze(2)).squeeze(1).softmax(-1)
            accepted = total_variation(prediction, original) <= epsilon * (1 + 1e-5)
            weights = torch.where(accepted[:, None, None], candidate, weights)
            total += torch.where(accepted, js[:, head], 0.0)
        return total / js.shape[1]

    def select(self, rows: Tensor) -> "Readout":
        """The readout of the rows where `rows` (R,) bool holds, and of their texts."""
        texts = torch.isin(self.batch.index, self.output.rows[rows, 0])
        empty = None if self._empty is None else self._empty[rows]
        output = self.output.select(texts, rows)
        return type(self)(self.batch.select(texts), output, self.model, empty)

    def blocks(self, weights: int) -> Iterator["Readout"]:
        """Readouts of consecutive rows, each of at most `weights` weights (rows x heads x items)."""
        size = max(1, weights // max(1, self.output.weights[:1].numel()))
        if len(self.lengths) <= size:
            yield self
            return
        places = torch.arange(len(self.lengths), device=self.lengths.device)
        for start in range(0, len(places), size):
            yield self.select((places >= start) & (places < start + size))

    def by_texts(self, pairs: int | None = None) -> Iterator["Readout"]:
        """Readouts of consecutive texts, such that 128 predictions of each row have few elements.

        At most 2**25, or one text; all texts at once where the readout is affine or of at most 256
        classes. With `pairs` they have at most so many pairs of tokens, texts times the square of the
        longest, or are of one text.
        """
        rows, classes = self.output.logits.shape
        few = self.affine or classes <= MANY_CLASSES
        most = rows if few else max(1, _PREDICTED // (128 * classes))
        texts = max(1, pairs // self.batch.mask[:1].numel() ** 2) if pairs else rows
        if rows <= most and len(self.batch) <= texts:
            yield self
            return
        ends = texts_of_rows(self.output.rows).bincount().cumsum(0).tolist()
        places, start, first = torch.arange(rows, device=self.lengths.device), 0, 0
        for text, (end, following) in enumerate(zip(ends, [*ends[1:], 2 * rows + 1], strict=True)):
            if following - start > most or text + 1 - first == texts:
                yield self.select((places >= start) & (places < end))
                start, first = end, text + 1

    def columns(self, measure: Columns, measure_heads: Columns) -> dict[str, Tensor]:
        """Columns (R,) and, for several heads, `<column>_by_head` (R, H).

        Rows of similar length are measured together: `measure` gets their readout, and
        `measure_heads` that of their single heads, see `by_head`.
        """
        parts: list[Readout] = [self]
        order, output = None, self.output
        if output.item_logits is not None and len(self.lengths) > _UNSPLIT_ROWS:
            ends = last_places(output.mask) + 1
            order, parts = ends.argsort(stable=True), []
            for rows in torch.split(order, _ROWS):
                # Without the padding that longer rows need.
                items = int(ends[rows].max().clamp(min=1))
                trimmed = replace(
                    output,
                    weights=output.weights[..., :items],
                    item_logits=output.item_logits[:, :, :items],
                    mask=output.mask[:, :items],
                ).select(slice(None), rows)
                parts.append(Readout(self.batch, trimmed, self.model, self.empty[rows]))
        measured = []
        for part in parts:
            columns, heads = dict(measure(part)), part.output.weights.shape[1]
            if heads > 1:
                by_head = measure_heads(part.by_head()).items()
                columns |= {f"{name}_by_head": values.view(-1, heads) for name, values in by_head}
            measured.append(columns)
        if order is None:
            return measured[0]
        inverse = order.argsort()
        return {name: torch.cat([part[name] for part in measured])[inverse] for name in measured[0]}

    def _rows_of_heads(self, item_logits: Tensor | None, empty: Tensor | None) -> AttentionOutput:
        """An output whose R H rows are the heads of this output's rows, given their item logits."""
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
