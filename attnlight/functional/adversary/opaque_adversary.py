"""Worst-case attention of readouts that are not affine: a search for a lower bound of the JS."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnlight.errors import InputError
from attnlight.functional._cpu import best_of_each
from attnlight.functional.adversary.exact import js_from, one_item_js
from attnlight.functional.adversary.line_search import NARROW, Brackets
from attnlight.functional.adversary.local_search import LocalSearch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.divergence import total_variation
from attnlight.functional.ranking import ranking
from attnlight.functional.readout.heads import (
    CandidateReadout,
    PartReadout,
    flatten_heads,
    head_readout,
)
from attnlight.functional.readout.opaque import ReadoutFunction, at_once

_ITEMS = 4  # items of each kind that segments and mixtures combine
_GAIN = 1e-6  # nats by which a segment's upper bound must exceed the best JS so far
_ROUNDS = 40  # of a line search
_BLOCK = 1 << 13  # weights (heads times items) whose local searches run together
_MOST = math.log(2)  # of any JS, where all attention is on items that had none
_MIN_RATIO = 1e-6  # least distance over epsilon, so that its logarithm is finite
# E segments to all attention on an item: heads (E,), attention at the start (E, N) and its excess
# (E,), see `_Search.evaluate`, and items (E,).
Segments = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.no_grad()
def opaque_adversary(
    weights: Tensor,
    readout: ReadoutFunction,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
    part: PartReadout | None = None,
    *,
    rows: Tensor | None = None,
    seed: int = 0,
    programs: bool = True,
    evaluations: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The attention of largest JS found that moves the prediction by at most epsilon.

    No attention has a larger JS than all attention on the item of least weight: the result is exact
    where this preserves the prediction, and a lower bound elsewhere. There, candidates are

    * all attention on each item;
    * mixtures of two items that leave the predicted class's log odds unchanged: one of the four of
      least weight that lower them, and one of the four that raise them;
    * points of segments to all attention on an item: from these mixtures to either item; from the
      original attention to the four items of closest prediction; and from it and from the four
      items of least weight that preserve the prediction to the four of least weight.

    JS is convex along a segment, which bounds it: segments that cannot exceed the best JS so far by
    1e-6 nats are skipped. For a differentiable readout, sequential linear programs (`LocalSearch`)
    then start from the best candidate and 30 random attentions, with up to `most_evaluations` of the
    readout per head, typically a quarter of that.

    A row's result depends on its key, its length and the seed, not on other rows. `readout` must
    not capture tensors created in inference mode, which autograd cannot use.

    Args:
        weights: The model's attention (B, N), or (B, H, N). Each head is varied separately, the
            others fixed.
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        mask: Items that attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between predictions, above 0.
        found: Attention that preserves the prediction, such as from `search_adversary`, in the
            shape of `weights`.
        part: Gives the readout of a subset of rows; None: every call evaluates all rows.
        rows: Dataset index and position of each row, (B, 2) long, the keys of its random starts;
            None: all rows have the same.
        seed: Seed of the starts, any integer.
        programs: Search by gradients and linear programs.
        evaluations: Most evaluations of the readout for a head, with `programs` a third of them
            before these; a gradient counts as two, padding of batches as none. None: no limit.

    Returns:
        Adversary (B, N), or (B, H, N), float64, the original attention where no candidate is
        feasible, and its JS in nats, (B,), or (B, H), float64; NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    if not epsilon > 0:
        raise InputError(f"epsilon is {epsilon}, but must be above 0")
    original, reach = flatten_heads(weights, mask)
    by_head = weights.detach() if weights.ndim == 3 else weights.detach().unsqueeze(1)
    candidates = CandidateReadout(readout, by_head, part, by_head=True)
    limit = evaluations // 3 if evaluations and programs else evaluations
    search = _Search(candidates, original, reach, epsilon, limit)
    if found is not None:
        initial = found.double().reshape(original.shape)
        search.js = js_from(original, initial)
        search.best = torch.where(search.js[:, None] > 0, initial, original)
    search.try_items()
    if search.open.any():
        for segments in search.segments():
            search.try_segments(*segments)
        search.try_segments(*search.mixtures())
    if programs and search.open.any():
        search.open &= (search.js < _MOST)[:, None]
        keys = mask.new_zeros(len(mask), 2, dtype=torch.long) if rows is None else rows
        left = None if evaluations is None else evaluations - evaluations // 3
        for block, heads, local in search.local_searches():
            local.climb(*local.starts(keys[block], seed, left))
            search.best[heads], search.js[heads] = local.best, local.js
    js = search.js.masked_fill(~search.finite, math.nan)
    return search.best.reshape(weights.shape), js.reshape(weights.shape[:-1])


class _Search:
    """Evaluates attentions of R heads over N items and records the best of each head.

    Attributes:
        finite: Whether the model's logits are finite, (R,).
        open: Items that attention may be moved to, (R, N) bool; none in heads that are solved.
        best: The best attention that preserves the prediction, (R, N), initially the original.
        js: Its JS, (R,).
        spent: Number of attentions evaluated, (R,).
    """

    def __init__(
        self,
        candidates: CandidateReadout,
        original: Tensor,
        reach: Tensor,
        epsilon: float,
        limit: int | None,
    ) -> None:
        self._candidates, self._original, self._epsilon = candidates, original, epsilon
        logits = candidates.original()
        candidates.classes = logits.shape[-1]
        self._prediction = logits.softmax(-1)
        self._winner = logits.argmax(-1)
        self._odds = log_odds(logits, self._winner)
        self.finite = logits.isfinite().all(-1)
        self.open = reach & self.finite[:, None]
        self.best, self.js = original.clone(), torch.zeros_like(original[:, 0])
        self.spent = torch.ones_like(self.js)  # the original attention
        self._limit = math.inf if limit is None else limit
        # All attention on each item: its JS, and its excess and lead from `evaluate`.
        self._single_js = one_item_js(original)
        self._excess, self._lead = torch.full_like(original, math.inf), torch.zeros_like(original)

    def evaluate(self, heads: Tensor, attentions: Tensor) -> tuple[Tensor, Tensor]:
        """Excess and lead (E,) of attentions (E, N) of heads (E,); updates `best` and `js`.

        Excess is the log of the total variation distance over epsilon, at most 0 where attention is
        feasible (preserves the prediction). Lead is the change of the predicted class's log odds.
        """
        self.spent += torch.bincount(heads, minlength=len(self.spent))
        size = at_once(self._candidates.weights, self._candidates.classes)
        parts = []
        for rows, given in zip(
            torch.split(heads, size), torch.split(attentions, size), strict=True
        ):
            logits = self._candidates.read(rows, given)
            distance = total_variation(logits.softmax(-1), self._prediction[rows])
            parts.append((distance, log_odds(logits, self._winner[rows]) - self._odds[rows]))
        distance, lead = (torch.cat(part) for part in zip(*parts, strict=True))
        excess = (distance / self._epsilon).clamp(min=_MIN_RATIO).log()
        feasible_heads, feasible = heads[excess <= 0], attentions[excess <= 0]
        winners, self.js = best_of_each(
            feasible_heads, js_from(self._original[feasible_heads], feasible), self.js
        )
        self.best[feasible_heads[winners]] = feasible[winners]
        return excess, lead

    def try_items(self) -> None:
        """Try all attention on the lightest item, the optimum, and if infeasible on each item."""
        heads = self.open.any(-1).nonzero().squeeze(-1)
        self._try(heads, self._original.masked_fill(~self.open, math.inf)[heads].argmin(-1))
        self.open &= ~(self._excess <= 0).any(-1, keepdim=True)  # solved
        order = ranking(-self._original, self.open)
        places = torch.arange(order.shape[1], device=order.device)
        affordable = places < self._limit - self.spent[:, None]
        heads, place = (self.open.gather(1, order) & affordable).nonzero().unbind(-1)
        self._try(heads, order[heads, place])

    def _try(self, heads: Tensor, items: Tensor) -> None:
        """Evaluate all attention on items (E,) of heads (E,)."""
        if len(heads):
            attentions = one_hot(items, self._original.shape[1]).double()
            self._excess[heads, items], self._lead[heads, items] = self.evaluate(heads, attentions)

    def segments(self) -> Iterator[Segments]:
        """Segments to the lightest items, from the original attention and from feasible items.

        Those from the original attention also lead to the items that change the prediction least.
        """
        closest = ranking(-self._excess, self.open)[:, :_ITEMS]
        lightest, is_open = self._lightest(self.open)
        items = torch.cat([closest, lightest], dim=1)
        valid = torch.cat([self.open.gather(1, closest), is_open], dim=1)
        head, column = valid.nonzero().unbind(-1)
        excess = torch.full_like(head, math.log(_MIN_RATIO), dtype=torch.float64)
        yield head, self._original[head], excess, items[head, column]
        feasible, is_feasible = self._lightest(self._excess <= 0)
        head, first, second = (is_feasible[:, :, None] & is_open[:, None]).nonzero().unbind(-1)
        start = feasible[head, first]
        starts = one_hot(start, self._original.shape[1]).double()
        yield head, starts, self._excess[head, start], lightest[head, second]

    def mixtures(self) -> Segments:
        """Segments from feasible mixtures of two items to each of them.

        One item makes the predicted class less probable and the other more probable; a root search
        finds the mixture that leaves its probability unchanged.
        """
        i, is_below = self._lightest(self._lead < 0)
        j, is_above = self._lightest(self._lead > 0)
        head, first, second = (is_below[:, :, None] & is_above[:, None]).nonzero().unbind(-1)
        i, j = i[head, first], j[head, second]
        bound = torch.maximum(self._single_js[head, i], self._single_js[head, j])
        # JS is convex: that of a mixture is at most the larger one of its items.
        promising = bound > self.js[head] + _GAIN
        head, i, j = head[promising], i[promising], j[promising]
        low, high, items = self._lead[head, i], self._lead[head, j], self._original.shape[1]
        mixtures = Brackets(
            torch.zeros_like(low), torch.ones_like(high), low, high, columns=(head, i, j)
        )
        found = [[head[:0], self._original[:0], low[:0], i[:0], j[:0]]]
        for turn in range(_ROUNDS):
            mixtures = mixtures.take(self._affordable(mixtures.columns[0]))
            head, i, j = mixtures.columns
            if not len(head):
                break
            share = mixtures.trial(halve=turn % 3 == 2)  # of item j
            ends = one_hot(i, items).double(), one_hot(j, items).double()
            mixed = torch.lerp(*ends, share[:, None])
            excess, lead = self.evaluate(head, mixed)
            feasible = excess <= 0
            found.append([part[feasible] for part in (head, mixed, excess, i, j)])
            mixtures.narrow(share, lead)
            # Equal probability but infeasible: the other classes' probabilities have changed.
            wide = mixtures.outside - mixtures.inside > NARROW
            mixtures = mixtures.take(~feasible & wide & (lead.abs() > self._epsilon / 2))
        head, mixed, excess, i, j = (torch.cat(part) for part in zip(*found, strict=True))
        return head.repeat(2), mixed.repeat(2, 1), excess.repeat(2), torch.cat([i, j])

    def try_segments(self, heads: Tensor, starts: Tensor, excess: Tensor, items: Tensor) -> None:
        """Try attention on `Segments` where the excess crosses 0, while JS there may be the best."""
        js, end_js = js_from(self._original[heads], starts), self._single_js[heads, items]
        ends = one_hot(items, self._original.shape[1]).double()
        segments = Brackets(
            inside=torch.zeros_like(excess),
            outside=torch.ones_like(excess),
            low=excess.clamp(max=-NARROW),
            high=self._excess[heads, items],
            columns=(heads, starts, ends, js, end_js),
        )
        segments = segments.take(segments.high > 0)
        for turn in range(_ROUNDS):
            heads, _, _, js, end_js = segments.columns
            # JS is convex along a segment, so between two points it is at most their chord.
            rest = (segments.outside - segments.inside) / (1 - segments.inside).clamp(min=NARROW)
            bound = torch.lerp(js, torch.maximum(js, end_js), rest.clamp(max=1.0))
            segments = segments.take((bound > self.js[heads] + _GAIN) & self._affordable(heads))
            heads, starts, ends, js, end_js = segments.columns
            if not len(heads):
                return
            share = segments.trial(halve=turn % 3 == 2)
            attentions = torch.lerp(starts, ends, share.unsqueeze(-1))
            excess, _ = self.evaluate(heads, attentions)
            segments.narrow(share, excess)
            js = torch.where(excess <= 0, js_from(self._original[heads], attentions), js)
            segments.columns = (heads, starts, ends, js, end_js)

    def local_searches(self) -> Iterator[tuple[Tensor, Tensor, LocalSearch]]:
        """Blocks of rows (r,), their heads (r H,), and a search for these."""
        part, weights = self._candidates.part, self._candidates.weights
        rows = torch.arange(len(weights), device=weights.device)
        heads = torch.arange(len(self.js), device=weights.device).view(len(weights), -1)
        size, readout = len(rows), self._candidates.readout
        if part is not None:  # else the readout needs all rows at once
            rows, size = rows[self.open[heads].any((1, 2))], max(1, _BLOCK // weights[0].numel())
        for block in torch.split(rows, size):
            members = heads[block].flatten()
            original, mask, best, js = (
                x[members] for x in (self._original, self.open, self.best, self.js)
            )
            read = head_readout(readout if part is None else part(block), weights[block])
            yield block, members, LocalSearch(read, original, mask, self._epsilon, best, js)

    def _affordable(self, heads: Tensor) -> Tensor:
        """Whether all attentions of an entry's head, from heads (E,), are within the limit, (E,)."""
        counts = torch.bincount(heads, minlength=len(self.spent))
        return (self.spent + counts <= self._limit)[heads]

    def _lightest(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The four open `candidates` (R, N) of least weight, (R, 4), and which are candidates."""
        candidates = candidates & self.open
        order = ranking(-self._original, candidates)[:, :_ITEMS]
        return order, candidates.gather(1, order)
