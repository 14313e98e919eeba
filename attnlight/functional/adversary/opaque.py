"""Different attention with the same prediction where the readout is not affine: by trying.

Where all attention on the lightest item keeps the prediction the answer is exact: no attention is
further from the model's own. Elsewhere what is found is a lower bound of the largest JS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnlight.errors import InputError
from attnlight.functional._cpu import best_of_each
from attnlight.functional.adversary.exact import js_from, one_item_js
from attnlight.functional.adversary.line_search import NARROW, Brackets
from attnlight.functional.divergence import total_variation
from attnlight.functional.ranking import ranking
from attnlight.functional.readout.heads import CandidateReadout, PartReadout, flatten_heads
from attnlight.functional.readout.opaque import ReadoutFunction

# Items of each kind at the ends of segments; candidates that are read at once; nats by which a
# segment must promise more than the best so far; rounds of a search.
_ITEMS, _CANDIDATES, _GAIN, _ROUNDS = 4, 1 << 15, 1e-6, 40
# Heads (E,), attention where each begins (E, N), its excess as `ask` returns it, and the item (E,)
# where it ends.
Segments = tuple[Tensor, Tensor, Tensor, Tensor]


def blackbox_adversary(
    weights: Tensor,
    readout: ReadoutFunction,
    mask: Tensor,
    epsilon: float,
    found: Tensor | None = None,
    part: PartReadout | None = None,
) -> tuple[Tensor, Tensor]:
    """The most different attention among some that move the prediction by at most epsilon.

    Tried are, as far as the prediction stays: all attention on the lightest item, which nothing
    exceeds; all attention on each item; the segments from the model's own attention to the four
    items of nearest prediction; those from it, and from each of the four lightest items that keep
    the prediction, to the four lightest items; and mixtures of one of the four lightest items that
    make the predicted class less likely with one of the four that make it more likely, outward from
    where the prediction is kept. JS is convex along a segment: one on which it cannot be 1e-6 nats
    above the best so far is left.

    Args:
        weights: The model's attention (B, N), or (B, H, N). Each head is taken by itself, the
            others held.
        readout: From candidates (B, H, K, N) to logits (B, K, C).
        mask: What attention may reach, (B, N) bool.
        epsilon: Largest total variation distance between the predictions, above 0.
        found: Attention that is known to keep the prediction, such as from `search_adversary`, in
            the shape of `weights`.
        part: The readouts of some rows alone; without it all rows are read as long as one is open.

    Returns:
        Adversary (B, N), or (B, H, N), float64, the model's own where nothing is found, and its JS
        in nats, (B,), or (B, H), float64; NaN where logits are not finite.

    Raises:
        InputError: If epsilon is not above 0.
    """
    if not epsilon > 0:
        raise InputError(f"epsilon is {epsilon}, but must be above 0")
    own, reach = flatten_heads(weights, mask)
    wide = weights.detach() if weights.ndim == 3 else weights.detach().unsqueeze(1)
    search = _Search(CandidateReadout(readout, wide, part, by_head=True), own, reach, epsilon)
    if found is not None:
        given = found.double().reshape(own.shape)
        search.js = js_from(own, given)
        search.best = torch.where(search.js[:, None] > 0, given, own)
    search.try_items()
    if search.open.any():
        for segments in search.segments():
            search.follow(*segments)
        search.follow(*search.mixtures())
    js = search.js.masked_fill(~search.finite, math.nan)
    return search.best.reshape(weights.shape), js.reshape(weights.shape[:-1])


class _Search:
    """Tries attentions of R heads over N items and keeps the best of each.

    Attributes:
        finite: Whether the model's logits are, (R,).
        open: Items that attention may be moved to, (R, N), none of heads whose answer is known.
        best: The best attention that keeps the prediction, (R, N), at first the model's own.
        js: Its JS, (R,).
    """

    def __init__(
        self, candidates: CandidateReadout, own: Tensor, reach: Tensor, epsilon: float
    ) -> None:
        self._candidates, self._own, self._epsilon = candidates, own, epsilon
        logits = candidates.original()
        self._prediction = logits.softmax(-1)
        self._winner = logits.argmax(-1, keepdim=True)
        self._odds = _log_odds(logits, self._winner)
        self.finite = logits.isfinite().all(-1)
        self.open = reach & self.finite[:, None]
        self.best, self.js = own.clone(), torch.zeros_like(own[:, 0])
        # JS of all attention on each item, and what `ask` says of it.
        self._alone = one_item_js(own)
        self._excess, self._lead = torch.full_like(own, math.inf), torch.zeros_like(own)

    def ask(self, heads: Tensor, attentions: Tensor) -> tuple[Tensor, Tensor]:
        """How far attentions (E, N) of heads (E,) move the prediction, and by what log odds, (E,).

        The first is the log of the total variation distance over epsilon: at most 0 where the
        prediction is kept. The second is of the predicted class, less the model's own. The best of
        those that keep the prediction are kept.
        """
        pieces = torch.split(heads, _CANDIDATES), torch.split(attentions, _CANDIDATES)
        read = self._candidates.read
        logits = torch.cat([read(*piece) for piece in zip(*pieces, strict=True)])
        moved = total_variation(logits.softmax(-1), self._prediction[heads])
        # Interpolation needs a number where nothing has moved at all.
        excess = (moved / self._epsilon).clamp(min=1e-6).log()
        lead = _log_odds(logits, self._winner[heads]) - self._odds[heads]
        keeping, kept = heads[excess <= 0], attentions[excess <= 0]
        better, self.js = best_of_each(keeping, js_from(self._own[keeping], kept), self.js)
        self.best[keeping[better]] = kept[better]
        return excess, lead

    def try_items(self) -> None:
        """Try all attention on the lightest item, which nothing exceeds, and else on each item."""
        heads = self.open.any(-1).nonzero().squeeze(-1)
        item = self._own.masked_fill(~self.open, math.inf)[heads].argmin(-1)
        for last in (False, True):
            if not len(heads):
                return
            excess, lead = self.ask(heads, one_hot(item, self._own.shape[1]).double())
            self._excess[heads, item], self._lead[heads, item] = excess, lead
            if not last:
                self.open[heads[excess <= 0]] = False
                heads, item = self.open.nonzero().unbind(-1)

    def segments(self) -> Iterator[Segments]:
        """Segments from the own attention, then from the lightest items that keep the prediction.

        They lead to the lightest items, those from the own attention also to the items that move
        the prediction least.
        """
        near = ranking(-self._excess, self.open)[:, :_ITEMS]
        light, real = self._lightest(self.open)
        items = torch.cat([near, light], dim=1)
        head, column = torch.cat([self.open.gather(1, near), real], dim=1).nonzero().unbind(-1)
        excess = torch.full_like(head, math.log(1e-6), dtype=torch.float64)
        yield head, self._own[head], excess, items[head, column]
        keeping, kept = self._lightest(self._excess <= 0)
        head, one, other = (kept[:, :, None] & real[:, None]).nonzero().unbind(-1)
        start = keeping[head, one]
        starts = one_hot(start, self._own.shape[1]).double()
        yield head, starts, self._excess[head, start], light[head, other]

    def mixtures(self) -> Segments:
        """Segments from mixtures of two items to each of them.

        One item makes the predicted class less likely and one more likely; sought are mixtures that
        leave its probability as it is.
        """
        i, below = self._lightest(self._lead < 0)
        j, above = self._lightest(self._lead > 0)
        head, one, other = (below[:, :, None] & above[:, None]).nonzero().unbind(-1)
        i, j = i[head, one], j[head, other]
        bound = torch.maximum(self._alone[head, i], self._alone[head, j])
        # A mixture of items that keep the prediction by themselves has been tried between them.
        where = bound > self.js[head] + _GAIN
        head, i, j = head[where], i[where], j[where]
        low, high, items = self._lead[head, i], self._lead[head, j], self._own.shape[1]
        mixtures = Brackets(
            torch.zeros_like(low), torch.ones_like(high), low, high, columns=(head, i, j)
        )
        found = [[head[:0], self._own[:0], low[:0], i[:0], j[:0]]]
        for turn in range(_ROUNDS):
            head, i, j = mixtures.columns
            if not len(head):
                break
            share = mixtures.trial(halve=turn % 3 == 2)
            ends = one_hot(i, items).double(), one_hot(j, items).double()
            mixed = torch.lerp(*ends, share[:, None])
            excess, lead = self.ask(head, mixed)
            kept = excess <= 0
            found.append([part[kept] for part in (head, mixed, excess, i, j)])
            mixtures.narrow(share, lead)
            # Of the same probability, and not kept: other classes have changed places.
            wide = mixtures.outside - mixtures.inside > NARROW
            mixtures = mixtures.take(~kept & wide & (lead.abs() > self._epsilon / 2))
        head, mixed, excess, i, j = (torch.cat(part) for part in zip(*found, strict=True))
        return head.repeat(2), mixed.repeat(2, 1), excess.repeat(2), torch.cat([i, j])

    def follow(self, heads: Tensor, starts: Tensor, excess: Tensor, items: Tensor) -> None:
        """Try attentions between starts (E, N), of an excess (E,), and all attention on items (E,).

        A segment is followed for as long as any attention on it may be better than the best so far.
        """
        js, end_js = js_from(self._own[heads], starts), self._alone[heads, items]
        ends = one_hot(items, self._own.shape[1]).double()
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
            # JS is convex along a segment: between two points it is nowhere above their chord.
            rest = (segments.outside - segments.inside) / (1 - segments.inside).clamp(min=NARROW)
            bound = torch.lerp(js, torch.maximum(js, end_js), rest.clamp(max=1.0))
            segments = segments.take(bound > self.js[heads] + _GAIN)
            heads, starts, ends, js, end_js = segments.columns
            if not len(heads):
                return
            share = segments.trial(halve=turn % 3 == 2)
            attentions = torch.lerp(starts, ends, share.unsqueeze(-1))
            excess, _ = self.ask(heads, attentions)
            segments.narrow(share, excess)
            js = torch.where(excess <= 0, js_from(self._own[heads], attentions), js)
            segments.columns = (heads, starts, ends, js, end_js)

    def _lightest(self, side: Tensor) -> tuple[Tensor, Tensor]:
        """Up to four items (R, 4) of least weight on a side (R, N), and whether there are so many."""
        side = side & self.open
        order = ranking(-self._own, side)[:, :_ITEMS]
        return order, side.gather(1, order)


def _log_odds(logits: Tensor, winner: Tensor) -> Tensor:
    """Log odds (E,) of the classes `winner` (E, 1) under logits (E, C)."""
    others = logits.scatter(-1, winner, -math.inf).logsumexp(-1)
    return logits.gather(-1, winner).squeeze(-1) - others
