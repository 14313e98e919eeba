"""Rank correlation of two scorings of the same items, and overlap of their top items."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from attnlight.functional.ranking import TIE, dense_ranks, lower_and_tied, top_share

# scipy's method="auto": the exact distribution up to this many items, if there are no ties.
_EXACT_ITEMS = 33
_PAIRS = 1 << 20  # of items, compared at once
TOP = 10  # the top items are one in so many


def kendall_tau(x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Kendall's tau-b and its two-sided p-value, as `scipy.stats.kendalltau` gives them.

    The p-value is exact without ties and with at most 33 items or at most one discordant (or
    concordant) pair, else asymptotic (Kendall, 1970). It takes O(N log^2 N) time and O(N) memory.

    Args:
        x: (B, N), or (B, ..., N) such as (B, H, N) for H heads.
        y: The shape of `x`.
        mask: The items to correlate, (B, N) bool.

    Returns:
        Tau and p, each (B,) or (B, ...), float64. NaN where undefined: fewer than two items, one
        scoring all tied, or a NaN among the scores.
    """
    shape = x.shape[:-1]
    width = x.shape[-1]
    mask = mask.reshape(len(mask), *(1,) * (x.ndim - 2), width).expand_as(x).flatten(0, -2)
    x, y = (scores.flatten(0, -2).double().masked_fill(~mask, math.inf) for scores in (x, y))
    has_nan = (x.isnan() | y.isnan()).any(-1)
    x, y = (dense_ranks(scores, mask, exact=True).masked_fill_(~mask, width) for scores in (x, y))
    joint = (x * (width + 1) + y).sort(-1).values
    discordant = _inversions(joint % (width + 1)).double()
    compact_mask = mask.sort(-1, descending=True).values
    items = mask.sum(-1).double()
    x_ties, y_ties = _ties(x, mask), _ties(y, mask)
    joint = dense_ranks(joint, compact_mask, exact=True).masked_fill_(~compact_mask, width)
    joint_ties, _, _ = _ties(joint, compact_mask)
    pairs = items * (items - 1) / 2
    untied_x, untied_y = pairs - x_ties[0], pairs - y_ties[0]
    undefined = (untied_x <= 0) | (untied_y <= 0)
    excess = pairs - x_ties[0] - y_ties[0] + joint_ties - 2 * discordant
    tau = (excess / untied_x.sqrt() / untied_y.sqrt()).clamp(-1, 1)
    ordered_pairs = 2 * pairs
    variance = (ordered_pairs * (2 * items + 5) - x_ties[2] - y_ties[2]) / 18
    variance += 2 * x_ties[0] * y_ties[0] / ordered_pairs
    variance += x_ties[1] * y_ties[1] / (9 * ordered_pairs * (items - 2))
    asymptotic = torch.erfc((excess / variance.sqrt()).abs() / math.sqrt(2))
    fewer = torch.minimum(discordant, pairs - discordant)
    exact = (x_ties[0] + y_ties[0] == 0) & ((items <= _EXACT_ITEMS) | (fewer <= 1))
    table = _table().to(items.device)
    column = fewer.clamp(0, table.shape[1] - 1).long()
    exact_p = table[items.clamp(0, _EXACT_ITEMS).long(), column]
    # 2 / n! if no pair is discordant, 2 / (n - 1)! if one is.
    extreme_p = 2 * torch.exp(-torch.lgamma(items + 1 - fewer))
    p = torch.where(exact, torch.where(items <= _EXACT_ITEMS, exact_p, extreme_p), asymptotic)
    undefined |= has_nan
    tau, p = (values.masked_fill(undefined, math.nan).reshape(shape) for values in (tau, p))
    return tau, p


def spearman_rho(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Spearman's rank correlation, as `scipy.stats.spearmanr` gives it, of scores (B, N).

    Returns:
        (B,) float64, NaN where undefined: fewer than two items, one scoring all tied, or a NaN.
    """
    has_nan = ((x.isnan() | y.isnan()) & mask).any(-1)
    centred = []
    for scores in (x, y):
        below, tied = lower_and_tied(scores, mask, exact=True)
        # Twice the mean rank of tied items minus the mean of all: whole numbers.
        centred.append((2 * below + tied - mask.sum(-1, keepdim=True)).masked_fill(~mask, 0.0))
    return _cosine(*centred).masked_fill(has_nan, math.nan)


def pearson_r(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Pearson's correlation, as `scipy.stats.pearsonr` gives it, of scores (B, N).

    Returns:
        (B,) float64, NaN where undefined: fewer than two items, one scoring all tied (within `TIE` of
        its largest from their mean), or a NaN.
    """
    centred = []
    for scores in (x, y):
        values = scores.double().masked_fill(~mask, 0.0)
        less = values - values.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
        less = less.masked_fill(~mask, 0.0)
        tie = TIE * values.abs().amax(-1, keepdim=True)
        centred.append(torch.where(less.abs().amax(-1, keepdim=True) <= tie, 0.0, less))
    return _cosine(*centred)


def top_overlap(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Share of the top k items by one scoring that are among the top k by the other.

    k is a tenth of the items, rounded up. Where ties leave it open which items are among the top k,
    the result is the expected share with ties broken at random, for each scoring by itself: it
    depends on no order of the items, and is k / N where one scoring ties all of them. Scores and mask
    are (B, N).

    Returns:
        (B,) float64 from 0 to 1, NaN for fewer than two items or a NaN.
    """
    undefined = ((x.isnan() | y.isnan()) & mask).any(-1) | (mask.sum(-1) < 2)
    k = top_count(mask.sum(-1))
    both = top_share(x, k, mask, exact=True) * top_share(y, k, mask, exact=True)
    return (both.sum(-1) / k).masked_fill(undefined, math.nan)


def top_count(items: Tensor) -> Tensor:
    """Number of top items among so many (long): a tenth, rounded up."""
    return (items + TOP - 1) // TOP


def rank_agreement(
    x: Tensor, y: Tensor, mask: Tensor, measures: Sequence[str] = ("tau", "spearman", "overlap")
) -> dict[str, Tensor]:
    """Agreement of two scorings of items, with the ties of `dense_ranks`.

    Args:
        x: (B, N).
        y: (B, N).
        mask: The items to compare, (B, N) bool.
        measures: Those to compute of `tau` (Kendall's tau-b), `spearman` and `overlap` (of the top
            tenth).

    Returns:
        The measures, each (B,) float64, NaN where undefined.
    """
    has_nan = ((x.isnan() | y.isnan()) & mask).any(-1)
    ranks = dense_ranks(x, mask), dense_ranks(y, mask)
    functions: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "tau": lambda *ranked: kendall_tau(*ranked)[0],
        "spearman": spearman_rho,
        "overlap": top_overlap,
    }
    return {name: functions[name](*ranks, mask).masked_fill(has_nan, math.nan) for name in measures}


def somers_d(
    scores: Tensor, truth: Tensor, mask: Tensor, least: float = 0.0, weights: Tensor | None = None
) -> Tensor:
    """Somers' D of scores given a truth, over the pairs of items that the truth separates clearly.

    These are the pairs whose truth differs by more than `least` of the row's largest; with 0, all
    that are not tied. D is the share of them that the scores order alike less the share ordered the
    other way; a pair of tied scores, by the ties of `dense_ranks`, is in neither.

    Args:
        scores: (B, N).
        truth: Values of at least 0, (B, N).
        mask: The items to compare, (B, N) bool.
        least: Smallest difference as a share of the row's largest truth.
        weights: How often each pair of items counts, (B, N, N); None: once.

    Returns:
        (B,) float64 from -1 to 1, NaN where there is no such pair or a NaN among the items.

    Example:
        >>> truth, mask = torch.tensor([[5.0, 1.0, 0.9]]), torch.ones(1, 3, dtype=torch.bool)
        >>> somers_d(torch.tensor([[0.5, 0.2, 0.3]]), truth, mask, 0.1)
        tensor([1.], dtype=torch.float64)
    """
    has_nan = ((scores.isnan() | truth.isnan()) & mask).any(-1)
    ranks, values = dense_ranks(scores, mask), truth.double().masked_fill(~mask, 0.0)
    sums, size = [], max(1, _PAIRS // max(1, mask.shape[1] ** 2))
    weights = mask.unsqueeze(-1) & mask.unsqueeze(1) if weights is None else weights
    for rank, value, pairs in zip(
        *(torch.split(x, size) for x in (ranks, values, weights)), strict=True
    ):
        separate = value.unsqueeze(-1) - value.unsqueeze(1) > least * value.amax(-1)[:, None, None]
        separate = separate * pairs
        signs = (rank.unsqueeze(-1) - rank.unsqueeze(1)).sign()
        sums.append((signs * separate).sum((1, 2)) / separate.sum((1, 2)))
    return torch.cat(sums).double().masked_fill(has_nan, math.nan)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine of vectors (B, N), NaN where one is 0."""
    product, x_square, y_square = (x * y).sum(-1), x.square().sum(-1), y.square().sum(-1)
    cosine = (product / (x_square * y_square).sqrt()).clamp(-1, 1)
    return cosine.masked_fill((x_square == 0) | (y_square == 0), math.nan)


def _ties(ranks: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per row, sums over groups of t tied items of t(t-1)/2, t(t-1)(t-2) and t(t-1)(2t+5)."""
    counts = mask.new_zeros(len(ranks), ranks.shape[1] + 1, dtype=torch.float64)
    t = counts.scatter_add_(-1, ranks, mask.double())
    pairs = t * (t - 1)
    return pairs.sum(-1) / 2, (pairs * (t - 2)).sum(-1), (pairs * (2 * t + 5)).sum(-1)


def _inversions(values: Tensor) -> Tensor:
    """Number of pairs i < j with values_i > values_j in each row (R, N), by merge sort."""
    rows, items = values.shape
    width = 1 << max(items - 1, 0).bit_length()
    values = torch.nn.functional.pad(values, (0, width - items), value=items)
    count = values.new_zeros(rows)
    size = 1
    while size < width:
        left, right = (
            half.contiguous() for half in values.view(rows, width // size // 2, 2, size).unbind(2)
        )
        count += torch.searchsorted(right, left).sum((1, 2))
        size *= 2
        values = values.view(rows, width // size, size).sort(-1).values
    return count


@cache
def _table() -> Tensor:
    """Two-sided p of n items (rows) and at most c discordant pairs (columns)."""
    pairs = _EXACT_ITEMS * (_EXACT_ITEMS - 1) // 2
    table = torch.ones(_EXACT_ITEMS + 1, pairs + 1, dtype=torch.float64)
    counts = [1] + [0] * pairs
    for items in range(2, _EXACT_ITEMS + 1):
        counts = [sum(counts[max(0, c - items + 1) : c + 1]) for c in range(pairs + 1)]
        total, running = math.factorial(items), 0
        for c, count in enumerate(counts):
            running += count
            table[items, c] = min(1.0, 2 * running / total)
    return table
