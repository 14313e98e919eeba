"""Comprehensiveness and sufficiency of rankings, and of a random ranking (DeYoung et al., 2020)."""

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from attnlight.functional.random import draw_keys
from attnlight.functional.ranking import first_items, random_rankings

# Rows of at most so many items get the exact expectation of a random ranking, over all its sets.
EXACT = 7
# Least difference that the empty text makes, for it to divide others: that of Carton et al.'s code.
LEAST = 1e-5


def share_counts(lengths: Tensor, shares: Sequence[float]) -> Tensor:
    """Number of items in each share of a row, rounded up and at least one.

    Shares are the decimal fractions that they are written as: 0.07 of 100 items are 7, although
    0.07 * 100 is larger in floating point.

    Args:
        lengths: Number of items of each row, (R,) long.
        shares: S shares, above 0 and at most 1.

    Returns:
        (R, S) long.
    """
    exact = [Fraction(str(share)) for share in shares]
    counts = [-(-lengths * share.numerator // share.denominator) for share in exact]
    return torch.stack(counts, dim=-1).clamp(min=1)


def random_sets(
    items: Tensor, rows: Tensor, counts: Tensor, draws: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Sets of remaining items whose mean is that of a random ranking, and the weights of this mean.

    Of a row of at most 7 items they are all sets of the sizes that occur, of a longer one the first
    items of seeded random orders, and the items after them.

    Args:
        items: The items, (R, N) bool.
        rows: Dataset index and position of each row, (R, 2) long.
        counts: Sizes of the S shares, (R, S) long.
        draws: Number of random orders of a longer row.
        seed: Any integer.

    Returns:
        Sets (R, K, N) bool, and weights (R, 2, S, K) float64, each summing to 1: of the sets that
        remain without the first items of a ranking, and of these items alone.
    """
    lengths, shares = items.sum(-1), counts.shape[-1]
    exact = lengths <= EXACT
    short, long = (chosen.nonzero().squeeze(-1) for chosen in (exact, ~exact))
    drawn = 2 * draws * shares
    size = max(2**EXACT * bool(len(short)), drawn * bool(len(long)))
    sets = items.unsqueeze(1).repeat(1, size, 1)
    weights = sets.new_zeros(len(items), 2, shares, size, dtype=torch.float64)
    if len(short):
        # Sets as binary numbers. Those of fewer than 7 items all occur equally often.
        bits = torch.arange(2**EXACT, device=items.device)[:, None] >> torch.arange(
            EXACT, device=items.device
        )
        own = items[short]
        ordinals = (own.cumsum(-1) - 1).clamp(0, EXACT - 1)
        every = (bits & 1).bool()[:, ordinals].transpose(0, 1) & own.unsqueeze(1)
        wanted = torch.stack([lengths[short, None] - counts[short], counts[short]], dim=1)
        members = every.sum(-1)[:, None, None] == wanted.unsqueeze(-1)  # (r, 2, S, 128)
        used = members.flatten(1, 2).any(1).unsqueeze(-1)
        sets[short, : 2**EXACT] = torch.where(used, every, own.unsqueeze(1))
        weights[short, ..., : 2**EXACT] = members.double() / members.sum(-1, keepdim=True)
    if len(long):
        own = items[long]
        orders = random_rankings(own, rows[long], draws, seed)
        first = first_items(orders.unsqueeze(2), counts[long].unsqueeze(1))  # (r, D, S, N)
        kept = torch.stack([own[:, None, None] & ~first, first], dim=1)
        sets[long, :drawn] = kept.flatten(1, 3)
        of_set = torch.eye(2 * shares, dtype=torch.float64, device=items.device)
        of_set = of_set.view(2, shares, 2, 1, shares).expand(-1, -1, -1, draws, -1) / draws
        weights[long, ..., :drawn] = of_set.flatten(2)
    return sets, weights


def probability_drops(logits: Tensor, original: Tensor, target: Tensor) -> Tensor:
    """Fall of the target's probability, `p(original) - p(changed)`, to full precision.

    It is the rise of the other classes' probability, which is accurate where the target is certain:
    (R, K) float64 from logits (R, K, C) of K changed texts, those of the original (R, C), and the class
    of each row (R,) long.
    """
    rise = logits.double().softmax(-1) - original.double().softmax(-1).unsqueeze(1)
    own = target[:, None, None].expand(*rise.shape[:-1], 1)
    return rise.scatter(-1, own, 0.0).sum(-1)


def choose_rows(rows: Tensor, count: int, seed: int) -> Tensor:
    """At most so many rows of each text, chosen by a seeded hash of index and position.

    They are `count` of the rows (R, 2) long, as a mask (R,) bool; a larger choice contains a smaller
    one.
    """
    order = draw_keys(~seed, rows[:, 0], rows[:, 1], 1, 1).view(-1).argsort(stable=True)
    order = order[rows[order, 0].argsort(stable=True)]  # by text, then by key
    text = rows[order, 0].contiguous()
    number = torch.arange(len(text), device=text.device) - torch.searchsorted(text, text)
    chosen = torch.zeros_like(order, dtype=torch.bool)
    chosen[order] = number < count
    return chosen
