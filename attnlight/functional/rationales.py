"""Items compared with relevant ones, such as those that people marked (DeYoung et al. 2020)."""

from itertools import permutations

import torch
from torch import Tensor

from attnlight.functional.ranking import dense_ranks, first_items, ranking, top_share


def plausibility(scores: Tensor, marked: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Agreement of scores with what people marked, each (B,) float64, NaN where nothing is marked.

    * `auprc`: average precision of the scores against the m marked items.
    * `token_f1`: F1 of the m items of highest score, expected over the order of tied ones.
    * `iou_f1`: F1 of the spans of these items (`span_f1`), tied items from left to right.

    Args:
        scores: (B, N); ties are those of `dense_ranks`.
        marked: (B, N) bool, False off the mask.
        mask: The items, (B, N) bool.
    """
    count = marked.sum(-1)
    return {
        "auprc": average_precision(scores, marked, mask),
        "token_f1": token_f1(top_share(scores, count, mask), marked),
        "iou_f1": span_f1(first_items(ranking(scores, mask), count), marked),
    }


def annotator_agreement(marks: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Agreement of single annotators with each other: the measures of `plausibility`.

    Means over the pairs of annotators who marked something; one annotator's items are the scores and
    the chosen items, the other's are the marked ones. Average precision depends on which is which and
    is the mean of both.

    Args:
        marks: What each of K annotators marked, (K, B, N) bool, False off the mask.
        mask: The items, (B, N) bool.

    Returns:
        Each (B,) float64, NaN where fewer than two annotators marked something.
    """
    marking = marks.any(-1)
    found: dict[str, list[Tensor]] = {"auprc": [], "token_f1": [], "iou_f1": []}
    for one, other in permutations(range(len(marks)), 2):
        defined = marking[one] & marking[other]
        values = {
            "auprc": average_precision(marks[one].double(), marks[other], mask),
            "token_f1": token_f1(marks[one], marks[other]),
            "iou_f1": span_f1(marks[one], marks[other]),
        }
        for name, value in values.items():
            found[name].append(value.where(defined, torch.nan))
    undefined = mask.new_full((1, len(mask)), torch.nan, dtype=torch.float64)
    return {name: torch.stack([*values, undefined[0]]).nanmean(0) for name, values in found.items()}


def token_f1(chosen: Tensor, marked: Tensor) -> Tensor:
    """F1 of chosen items against marked ones, (B,) float64; NaN if there are neither.

    Args:
        chosen: (B, N), bool or the probability that an item is chosen; with probabilities the result
            is the expected F1, provided that the number of chosen items is fixed.
        marked: (B, N) bool.
    """
    chosen = chosen.double()
    return 2 * (chosen * marked).sum(-1) / (chosen.sum(-1) + marked.sum(-1))


def span_f1(chosen: Tensor, marked: Tensor) -> Tensor:
    """F1 of chosen spans against marked ones, (B,) float64; NaN if there are neither.

    Spans are maximal runs of items. Two of them match if their intersection over union is at least
    0.5, which a span does with at most one other.

    Args:
        chosen: (B, N) bool.
        marked: (B, N) bool.

    Example:
        >>> chosen = torch.tensor([[True, True, False, True, False]])
        >>> marked = torch.tensor([[False, True, False, True, True]])
        >>> span_f1(chosen, marked)
        tensor([1.], dtype=torch.float64)
    """
    starts, lengths = _runs(torch.stack([chosen, marked, chosen & marked]))
    # A run of common items is the intersection of one span of each.
    matches = starts[2] & (3 * lengths[2] >= lengths[0] + lengths[1])
    return 2 * matches.sum(-1).double() / (starts[0].sum(-1) + starts[1].sum(-1))


def _runs(items: Tensor) -> tuple[Tensor, Tensor]:
    """The first item of each maximal run of items (..., N), and the length of each item's run."""
    starts = items.clone()
    starts[..., 1:] &= ~items[..., :-1]
    run = starts.long().cumsum(-1)
    counts = run.new_zeros(*run.shape[:-1], run.shape[-1] + 1)
    counts.scatter_add_(-1, run, items.long())
    return starts, counts.gather(-1, run).masked_fill(~items, 0)


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
