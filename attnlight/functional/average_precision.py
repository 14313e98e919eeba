"""Average precision of scores against relevant items, and its expectation for a random order."""

import torch
from torch import Tensor

from attnlight.functional.ranking import dense_ranks


def average_precision(scores: Tensor, relevant: Tensor, mask: Tensor) -> Tensor:
    """Area under the precision-recall curve of each row, in steps and without interpolation.

    The mean over relevant items of the precision among the items that score at least as high. Tied
    items share a threshold, as in `sklearn.metrics.average_precision_score`, so that the result does
    not depend on their order: if all items are tied it is the share of relevant ones.

    Args:
        scores: (B, N); ties are those of `dense_ranks`.
        relevant: Items to be found, (B, N) bool; those off the mask are ignored.
        mask: The items, (B, N) bool.

    Returns:
        (B,) float64, NaN in rows without relevant items.

    Example:
        >>> relevant = torch.tensor([[True, False, True]])
        >>> average_precision(torch.tensor([[0.5, 0.3, 0.2]]), relevant, relevant | True)
        tensor([0.8333], dtype=torch.float64)
    """
    places, relevant = dense_ranks(scores, mask) + 1, relevant & mask  # 0 off the mask
    counts = torch.stack([mask, relevant]).double()
    by_rank = counts.new_zeros(*counts.shape[:2], mask.shape[1] + 1)
    by_rank.scatter_add_(-1, places.expand_as(counts), counts)
    found = by_rank.flip(-1).cumsum(-1).flip(-1).gather(-1, places.expand_as(counts))
    precision = found[1] / found[0].clamp(min=1)
    # 0 / 0 where nothing is relevant.
    return precision.masked_fill(~relevant, 0.0).sum(-1) / relevant.sum(-1)


def expected_average_precision(relevant: Tensor, items: Tensor) -> Tensor:
    r"""Average precision of a uniform random order without ties, in expectation.

    An item is at each of n places with equal probability, and each of the n - 1 others is before it
    as often as after it: with m relevant items and H the n-th harmonic number the expectation is
    `(H + (m - 1) / (n - 1) (n - H)) / n`. It exceeds the share m / n, to which it converges for
    large n at a fixed share.

    Args:
        relevant: Number of relevant items m, any shape, integers from 1 to n.
        items: Number of items n, the same shape.

    Returns:
        Float64, of that shape; NaN where m is 0.

    Example:
        >>> expected_average_precision(torch.tensor([1, 2]), torch.tensor([3, 3]))
        tensor([0.6111, 0.8056], dtype=torch.float64)
    """
    m, n = relevant.double(), items.double()
    harmonic = torch.digamma(n + 1) - torch.digamma(torch.ones_like(n))
    expected = (harmonic + (m - 1) / (n - 1).clamp(min=1) * (n - harmonic)) / n
    return expected.masked_fill(m == 0, torch.nan)
