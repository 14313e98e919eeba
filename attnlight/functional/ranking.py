"""Rankings of items by score and at random, and random items for comparison."""

import torch
from torch import Tensor

from attnlight.functional._cpu import sorted_keys
from attnlight.functional.random import draw_keys, permutations


def ranking(scores: Tensor, mask: Tensor) -> Tensor:
    """Items from the highest score to the lowest, tied ones from left to right.

    Args:
        scores: (B, N); ties are those of `dense_ranks`.
        mask: The items to rank, (B, N) bool.

    Returns:
        (B, N) long, places off the mask last.
    """
    ranks, items = dense_ranks(scores, mask), mask.shape[1]
    # Unique keys: by descending rank, then from left to right.
    keys = (items - ranks) * items + torch.arange(items, device=mask.device)
    return sorted_keys(keys) % items


def first_items(order: Tensor, count: Tensor) -> Tensor:
    """The first `count` (...) places of an order (..., N), as a set (..., N) bool."""
    first = torch.arange(order.shape[-1], device=order.device) < count.unsqueeze(-1)
    shape = torch.broadcast_shapes(order.shape, first.shape)  # type: ignore[no-untyped-call]
    return first.new_zeros(shape).scatter(-1, order.expand(shape), first.expand(shape))


def random_rankings(mask: Tensor, rows: Tensor, draws: int, seed: int) -> Tensor:
    """Uniform random orders of the items (B, N) of each row, by `permutations`.

    Returns:
        (B, K, N) long, places off the mask last.
    """
    places = item_places(mask)
    shuffles = permutations(mask.sum(-1), rows, draws, seed)
    longest = shuffles.shape[-1]
    expanded = places.unsqueeze(1).expand(-1, draws, -1)
    return torch.cat([expanded.gather(-1, shuffles), expanded[..., longest:]], dim=-1)


def random_others(
    mask: Tensor, rows: Tensor, first: Tensor, seed: int, released: bool = False
) -> Tensor:
    """For each of K items, one uniform draw among the other items of its row.

    All draws of a row derive from one random number, so that equal first items get equal draws.

    Args:
        mask: The items to draw from, (B, N) bool.
        rows: Dataset index and position of each row, (B, 2) long.
        first: Places of the items excluded from the draws, (B, K) long.
        seed: Any integer.
        released: Draw the "random non-top" item of Serrano and Smith's released code, which uses a
            rank drawn from 1 to L - 1 as a place in the text: never the first item of the text, and
            with probability 1 / (L - 1) `first` itself, unless that is the first item.

    Returns:
        Places (B, K) long; meaningless in rows with fewer than two items.
    """
    numbers = draw_keys(seed, rows[:, 0], rows[:, 1], 1, 1).squeeze(-1)
    draws = (numbers & 0x7FFFFFFF_FFFFFFFF) % (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    excluded = torch.zeros_like(first) if released else mask.cumsum(-1).gather(-1, first) - 1
    others = (draws + (draws >= excluded)).clamp(max=mask.shape[1] - 1)
    return item_places(mask).gather(-1, others)


def item_places(mask: Tensor) -> Tensor:
    """Places of the items from left to right, then those off the mask, (B, N) long."""
    places = torch.arange(mask.shape[1], device=mask.device)
    padded = mask.is_cpu and torch.equal(mask, places < mask.sum(-1, keepdim=True))
    if padded:  # at the end alone
        return places.expand(mask.shape)
    return mask.byte().sort(dim=-1, descending=True, stable=True).indices


# Tolerance relative to the largest absolute score of an instance.
TIE = 1e-5


def dense_ranks(scores: Tensor, mask: Tensor, exact: bool = False) -> Tensor:
    """Dense ranks from 0, ascending, in which nearly equal scores are tied.

    Consecutive sorted scores are tied if they differ by at most 1e-5 of the instance's largest
    absolute score.

    Args:
        scores: (B, N); in a row with NaN in its mask all items are tied.
        mask: The items to rank, (B, N) bool.
        exact: Only equal scores are tied; NaN in the mask then makes the ranks meaningless.

    Returns:
        (B, N) long, -1 off the mask.
    """
    scores = scores.double()
    tie: Tensor | float = 0.0
    if not exact:
        tie = TIE * scores.abs().masked_fill(~mask, 0.0).amax(-1, keepdim=True)
    scores = scores.masked_fill(~mask, torch.inf)
    if scores.is_cpu:  # numpy's is about four times as fast
        order = torch.from_numpy(scores.detach().numpy().argsort(axis=-1))
    else:
        order = scores.argsort(-1)
    steps = (scores.gather(-1, order).diff(dim=-1) > tie).cumsum(-1)
    return torch.zeros_like(order).scatter_(-1, order[:, 1:], steps).masked_fill_(~mask, -1)


def lower_and_tied(scores: Tensor, mask: Tensor, exact: bool = False) -> tuple[Tensor, Tensor]:
    """Per item, numbers of items with a lower and with the same score, (B, N); arbitrary off it.

    Arguments are those of `dense_ranks`.
    """
    ranks = dense_ranks(scores, mask, exact).clamp(min=0)
    counts = mask.new_zeros(mask.shape, dtype=torch.float64).scatter_add(-1, ranks, mask.double())
    return (counts.cumsum(-1) - counts).gather(-1, ranks), counts.gather(-1, ranks)


def top_share(scores: Tensor, count: Tensor, mask: Tensor, exact: bool = False) -> Tensor:
    """Probability that each item is among the top `count`, with ties broken at random.

    Args:
        scores: (B, N); ties are those of `dense_ranks`.
        count: Number of items to choose, (B,), at most the number of items.
        mask: The items, (B, N) bool.
        exact: Only equal scores are tied.

    Returns:
        (B, N) float64 that sums to `count`: 1 above the tie at the threshold, 0 below it.

    Example:
        >>> scores, mask = torch.tensor([[0.4, 0.2, 0.2, 0.2]]), torch.ones(1, 4, dtype=torch.bool)
        >>> top_share(scores, torch.tensor([2]), mask)
        tensor([[1.0000, 0.3333, 0.3333, 0.3333]], dtype=torch.float64)
    """
    below, tied = lower_and_tied(scores, mask, exact)
    above = mask.sum(-1, keepdim=True) - below - tied
    return ((count.unsqueeze(-1) - above) / tied).clamp(0, 1).masked_fill(~mask, 0.0)
