"""Different attention with the same prediction where the readout is not affine: by trying.

Nothing is exact here but where the lightest item alone keeps the prediction: no attention is
further from the model's own. Elsewhere what is found is a lower bound of what there is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnlight.functional._cpu import first_of_each
from attnlight.functional.adversary.exact import js_from, one_item_js
from attnlight.functional.adversary.line_search import Straddles, Ways
from attnlight.functional.adversary.worst_case import require_positive
from attnlight.functional.divergence import total_variation
from attnlight.functional.ranking import ranking
from attnlight.functional.readout.heads import Candidates, PartReadout, own_attention
from attnlight.functional.readout.opaque import ReadCandidates

# Items of a kind that ways lead to or from; candidates that are read at once; what of JS, in nats,
# is not searched for; rounds of a search.
_ITEMS, _CANDIDATES, _GAIN, _ROUNDS = 4, 1 << 15, 1e-6, 40


def blackbox_adversary(
    weights: Tensor,
    readout: ReadCandidates,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
    part: PartReadout | None = None,
) -> tuple[Tensor, Tensor]:
    """The most different attention among some that move the prediction by at most epsilon.

    Tried are, as far as the prediction stays: all attention on the lightest item, which nothing
    exceeds; all attention on each item; the way from the model's own attention to each of the four
    items of nearest prediction; the way from it, and from each of the four lightest items that keep
    the prediction, to each of the four lightest items; and mixtures of one of the four lightest
    items that make the predicted class less likely with one of the four that make it more likely,
    outward from where the prediction is kept. JS is convex along a way: one that cannot lead 1e-6
    nats above the best so far is left.

    Args:
        weights: The model's attention (B, N), or (B, H, N). Each head is taken by itself, the
            others held.
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions, above 0.
        found: Attention that is known to keep the prediction, such as from `search_adversary`, in
            the shape of `weights`.
        part: The readouts of some rows alone, without which all are read until the last is done.

    Returns:
        Adversary (B, N), or (B, H, N), float64, the model's own where nothing is found, and its JS
        in nats, (B,), or (B, H), float64; NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    require_positive(epsilon)
    own, reach = own_attention(weights, mask)
    box = _Box(Candidates(readout, weights, part, by_head=True), own, reach, epsilon)
    if found is not None:
        given = found.double().reshape(own.shape)
        box.take(torch.arange(len(own), device=own.device), given)
    heads = (box.finite & reach.any(-1)).nonzero().squeeze(-1)
    if len(heads):
        light = box.ones(own.masked_fill(~reach, math.inf)[heads].argmin(-1))
        kept = box.ask(heads, light)[0] <= 0
        box.take(heads[kept], light[kept])
        heads = heads[~kept]
    if len(heads):
        attempt = _Attempt(box, heads)
        attempt.follow(attempt.ways_from_own())
        attempt.follow(attempt.ways_between())
        attempt.follow(attempt.ways_from_mixtures())
    js = box.js.masked_fill(~box.finite, math.nan)
    return box.best.reshape(weights.shape), js.reshape(weights.shape[:-1])


class _Box:
    """What can be asked about R heads of N items, and the best that is found for each.

    Attributes:
        own: The model's attention, (R, N).
        reach: What it may reach, (R, N).
        epsilon: Largest total variation distance between the predictions.
        alone: JS of all attention on each item, (R, N).
        finite: Whether the model's logits are, (R,).
        best: The best attention, (R, N).
        js: Its JS, (R,).
    """

    def __init__(self, candidates: Candidates, own: Tensor, reach: Tensor, epsilon: float) -> None:
        self.own, self.reach = own, reach
        self.alone = one_item_js(own)
        self._candidates, self.epsilon = candidates, epsilon
        logits = candidates.own()
        self.finite = logits.isfinite().all(-1)
        self._prediction = logits.softmax(-1)
        self._winner = logits.argmax(-1, keepdim=True)
        self._odds = _log_odds(logits, self._winner)
        self.best, self.js = own.clone(), torch.zeros_like(own[:, 0])

    def ask(self, heads: Tensor, attentions: Tensor) -> tuple[Tensor, Tensor]:
        """How far attentions (E, N) of heads (E,) move the prediction, and by what log odds, (E,).

        The first is the log of the total variation distance over epsilon: at most 0 where the
        prediction is kept. The second is of the predicted class, less the model's own.
        """
        pieces = torch.split(heads, _CANDIDATES), torch.split(attentions, _CANDIDATES)
        read = self._candidates.read
        logits = torch.cat([read(*piece) for piece in zip(*pieces, strict=True)])
        moved = total_variation(logits.softmax(-1), self._prediction[heads])
        # Not moved at all is as good as hardly: interpolation needs a number.
        excess = (moved / self.epsilon).clamp(min=1e-6).log()
        return excess, _log_odds(logits, self._winner[heads]) - self._odds[heads]

    def take(self, heads: Tensor, attentions: Tensor) -> Tensor:
        """Keep the best of attentions (E, N) of heads (E,) that keep the prediction; their JS."""
        js = js_from(self.own[heads], attentions)
        top = self.js.scatter_reduce(0, heads, js, "amax")
        better = ((js == top[heads]) & (js > self.js[heads])).nonzero().squeeze(-1)
        better = better[first_of_each(heads[better])]
        self.best[heads[better]] = attentions[better]
        self.js = top
        return js

    def ones(self, items: Tensor) -> Tensor:
        """All attention (E, N) on items (E,)."""
        return torch.nn.functional.one_hot(items, self.own.shape[1]).double()

    def hopeful(self, heads: Tensor, bound: Tensor) -> Tensor:
        """Whether a bound (E,) of JS is worth more search for heads (E,)."""
        return bound > self.js[heads] + _GAIN


class _Attempt:
    """The tries for heads (r,) of a box of which no attention on one item is the answer."""

    def __init__(self, box: _Box, heads: Tensor) -> None:
        self._box, self._heads = box, heads
        self._reach, self._own = box.reach[heads], box.own[heads]
        row, item = self._reach.nonzero().unbind(-1)
        excess, lead = box.ask(heads[row], box.ones(item))
        self._excess = torch.full_like(self._own, math.inf)
        self._lead = torch.zeros_like(self._own)
        self._excess[row, item], self._lead[row, item] = excess, lead
        kept = excess <= 0
        box.take(heads[row[kept]], box.ones(item[kept]))

    def follow(self, ways: Ways) -> None:
        """Try attentions on ways for as long as any may be better than the best so far."""
        box = self._box
        for turn in range(_ROUNDS):
            ways = ways.take(box.hopeful(ways.heads, ways.bound()))
            if not len(ways.heads):
                return
            attentions = ways.next(halve=turn % 3 == 2)
            excess, _ = box.ask(ways.heads, attentions)
            kept = excess <= 0
            js = js_from(box.own[ways.heads], attentions)
            box.take(ways.heads[kept], attentions[kept])
            ways.narrow(excess, js)

    def ways_from_own(self) -> Ways:
        """From the model's own attention to the items of nearest prediction and to the lightest."""
        near = ranking(-self._excess, self._reach)[:, :_ITEMS]
        light, real = self._lightest(self._reach)
        items = torch.cat([near, light], dim=1)
        real = torch.cat([self._reach.gather(1, near), real], dim=1)
        row, column = real.nonzero().unbind(-1)
        start = torch.full_like(row, 1, dtype=torch.float64) * math.log(1e-6)
        return self._ways(row, self._own[row], start, items[row, column])

    def ways_between(self) -> Ways:
        """From the lightest items that keep the prediction to the lightest items."""
        keeping, kept = self._lightest(self._excess <= 0)
        light, real = self._lightest(self._reach)
        row, one, other = (kept[:, :, None] & real[:, None]).nonzero().unbind(-1)
        start = keeping[row, one]
        return self._ways(row, self._box.ones(start), self._excess[row, start], light[row, other])

    def ways_from_mixtures(self) -> Ways:
        """From mixtures of a lighter and a heavier item for the predicted class, to both.

        They are sought where such a mixture leaves the probability of this class as it is.
        """
        i, below = self._lightest(self._lead < 0)
        j, above = self._lightest(self._lead > 0)
        row, one, other = (below[:, :, None] & above[:, None]).nonzero().unbind(-1)
        i, j = i[row, one], j[row, other]
        alone = self._box.alone[self._heads]
        hopeful = self._box.hopeful(self._heads[row], torch.maximum(alone[row, i], alone[row, j]))
        # A mixture of items that keep the prediction by themselves is among the ways between.
        row, i, j = row[hopeful], i[hopeful], j[hopeful]
        low, high = self._lead[row, i], self._lead[row, j]
        ends = torch.zeros_like(low), torch.ones_like(high)
        open_ = Straddles(row, i, j, *ends, low, high)
        found = []
        for turn in range(_ROUNDS):
            if not len(open_.row):
                break
            share = open_.next(halve=turn % 3 == 2)
            mixed = torch.lerp(self._box.ones(open_.i), self._box.ones(open_.j), share[:, None])
            excess, lead = self._box.ask(self._heads[open_.row], mixed)
            kept = excess <= 0
            found.append((open_.row[kept], share[kept], excess[kept], open_.i[kept], open_.j[kept]))
            open_.narrow(share, lead)
            # Of the same probability, and not kept: other classes have changed places.
            open_ = open_.take(~kept & (lead.abs() > self._box.epsilon / 2))
        columns = [torch.cat(column) for column in zip(*found, strict=True)] or [row[:0]] * 5
        row, share, excess, i, j = columns
        mixed = torch.lerp(self._box.ones(i), self._box.ones(j), share.double()[:, None])
        self._box.take(self._heads[row], mixed)
        row, excess = row.repeat(2), excess.double().repeat(2)
        return self._ways(row, mixed.repeat(2, 1), excess, torch.cat([i, j]))

    def _ways(self, row: Tensor, starts: Tensor, excess: Tensor, items: Tensor) -> Ways:
        """Ways from starts (E, N) of an excess (E,) to items (E,), but those that end within."""
        box, heads = self._box, self._heads[row]
        ways = Ways(
            heads=heads,
            starts=starts,
            ends=box.ones(items),
            inside=torch.zeros_like(excess),
            outside=torch.ones_like(excess),
            low=excess.clamp(max=-1e-9),
            high=self._excess[row, items],
            js=js_from(box.own[heads], starts),
            end_js=box.alone[heads, items],
        )
        return ways.take(ways.high > 0)

    def _lightest(self, side: Tensor) -> tuple[Tensor, Tensor]:
        """Up to four items (r, 4) of least weight on a side (r, N), and whether there are so many."""
        side = side & self._reach
        order = ranking(-self._own, side)[:, :_ITEMS]
        return order, side.gather(1, order)


def _log_odds(logits: Tensor, winner: Tensor) -> Tensor:
    """Log odds (E,) of the classes `winner` (E, 1) under logits (E, C)."""
    others = logits.scatter(-1, winner, -math.inf).logsumexp(-1)
    return logits.gather(-1, winner).squeeze(-1) - others
