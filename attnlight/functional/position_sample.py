"""A seeded sample of a text's items, and the rank correlation over all of them, estimated from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional.ranking import first_items, random_rankings, ranking
from attnlight.functional.readout.instances import rows_are_texts

LEAST = 20  # items of a sample; intervals of fewer miss the true tau too often
_TOP = 4  # one in so many sampled items is a top item
_NORMAL = 1.959964  # the 97.5 % quantile
_LARGEST = 1 - 1e-9  # tau that is transformed


@dataclass(frozen=True)
class PositionSample:
    """A sample of each row's items, measured in place of all.

    The first items of some rankings are in every sample; the others are drawn at random without
    replacement. A pair of items is weighted by its inverse inclusion probability.

    Attributes:
        known: The sampled items, (R, N) bool.
        certain: Those that every sample has, (R, N) bool.
        mask: All items, (R, N) bool.
    """

    known: Tensor
    certain: Tensor
    mask: Tensor

    @classmethod
    def of_texts(
        cls,
        batch: TextBatch,
        output: AttentionOutput,
        rankings: Sequence[Tensor],
        count: int,
        seed: int,
    ) -> PositionSample:
        """A sample of `count` items of each text, all where it has no more.

        A quarter of them are the first items of the rankings, the same number of each. The draw is a
        function of the seed, the text and the rankings.

        Args:
            batch: R texts.
            output: The model's output for them.
            rankings: Scores (R, N) whose highest are always in the sample.
            count: Number of items, at least `LEAST`.
            seed: Any integer.

        Raises:
            InputError: Rows are not texts.
        """
        if not rows_are_texts(batch, output):
            raise InputError(
                "positions are sampled where rows are texts, but this model's are tokens: leave out "
                "positions."
            )
        mask, items = output.mask, output.mask.shape[1]
        top = mask.new_full((len(mask),), max(1, count // (_TOP * len(rankings))), dtype=torch.long)
        certain = torch.zeros_like(mask)
        for scores in rankings:
            certain |= first_items(ranking(scores, mask), top) & mask
        turn = random_rankings(mask, output.rows, 1, seed)[:, 0].argsort(-1)
        order = (turn + items * (2 * ~mask + ~certain)).argsort(-1)
        return cls(first_items(order, mask.sum(-1).clamp(max=count)), certain, mask)

    def counts(self) -> tuple[Tensor, Tensor]:
        """Numbers of items that are not certain, and of those in the sample, each (R, 1) float64."""
        drawn = (self.mask & ~self.certain, self.known & ~self.certain)
        population, sampled = (items.sum(-1, keepdim=True).double() for items in drawn)
        return population, sampled

    def item_weights(self) -> Tensor:
        """Inverse inclusion probability of each item, (R, N) float64; 0 of what is not in the sample."""
        population, sampled = self.counts()
        return torch.where(self.certain, 1.0, population / sampled.clamp(min=1)) * self.known

    def compact(self, *values: Tensor) -> list[Tensor]:
        """The sampled items of values (R, N), each (R, K), padded to the row that has most."""
        order = self.known.byte().sort(dim=-1, descending=True, stable=True).indices
        places = order[:, : max(1, int(self.known.sum(-1).max()))] if len(order) else order
        return [value.gather(-1, places) for value in values]

    def pair_weights(self) -> Tensor:
        """Inverse inclusion probability of each pair of `compact` items, (R, K, K) float64.

        0 for an item with itself and for padding.
        """
        certain, known = self.compact(self.certain, self.known)
        n, m = (count.unsqueeze(-1) for count in self.counts())
        drawn = (~certain).double()
        either, both = (
            drawn.unsqueeze(-1) + drawn.unsqueeze(1),
            drawn.unsqueeze(-1) * drawn.unsqueeze(1),
        )
        of_one = n / m.clamp(min=1)
        of_two = torch.where(m > 1, n * (n - 1) / (m * (m - 1)).clamp(min=1), 1.0)
        weights = torch.where(both > 0, of_two, torch.where(either > 0, of_one, 1.0))
        pairs = known.unsqueeze(-1) & known.unsqueeze(1)
        return (weights * pairs).diagonal_scatter(torch.zeros_like(drawn), 0, 1, 2)

    def tau(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Kendall's tau-b of all items as the sample shows it, with a 95 % interval.

        Sums over pairs of items are weighted by `pair_weights`. The interval is about the tau of these
        items, not of other texts: it takes the linear part of tau over the drawn items, corrected for a
        finite population, Student's quantile and Fisher's transformation.

        Args:
            x: Ranks of the items, (R, N) long as of `dense_ranks`, or (R, H, N).
            y: Ranks of the sampled items by another scoring, of the same shape.

        Returns:
            Tau and both ends of the interval, each (R,) or (R, H), float64; NaN where a scoring ties
            all sampled items. The ends are tau where all items are known.
        """
        if x.ndim > 2:
            each = [self.tau(*ranks) for ranks in zip(x.unbind(1), y.unbind(1), strict=True)]
            tau, low, high = (torch.stack(values, 1) for values in zip(*each, strict=True))
            return tau, low, high
        ranks, weights = self.compact(x, y), self.pair_weights()
        signs = [(rank.unsqueeze(-1) - rank.unsqueeze(1)).sign().double() for rank in ranks]
        squares = [sign.square() for sign in signs]
        untied = [(weights * square).sum((1, 2), keepdim=True) for square in squares]
        products = signs[0] * signs[1] / (untied[0] * untied[1]).sqrt()
        tau = (weights * products).sum((1, 2), keepdim=True)
        linear = products - tau / 2 * (squares[0] / untied[0] + squares[1] / untied[1])
        parts, tau = 2 * (weights * linear).sum(-1), tau.flatten().clamp(-1, 1)
        # The variance of the sum of the parts, of which those of certain items do not vary.
        (drawn,), (n, m) = self.compact(self.known & ~self.certain), self.counts()
        free = (m - 1).clamp(min=1)
        spread = (parts - (parts * drawn).sum(-1, keepdim=True) / m.clamp(min=1)) * drawn
        variance = spread.square().sum(-1, keepdim=True) / free * m * (1 - m / n.clamp(min=1))
        quantile = _NORMAL + 2.37227 / free + 2.8225 / free.square()  # of Student's t
        half = (quantile * variance.clamp(min=0).sqrt()).squeeze(-1)
        half = half / (1 - tau.square()).clamp(min=1 - _LARGEST)
        middle = tau.clamp(-_LARGEST, _LARGEST).atanh()
        return tau, (middle - half).tanh().minimum(tau), (middle + half).tanh().maximum(tau)
