"""Alignment error rate of predicted links (Och & Ney, 2003)."""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlight.batch import SURE


class AlignmentScores(NamedTuple):
    """Scores of predicted links, (G,) float64; NaN where the denominator is 0.

    Attributes:
        error: `1 - (|A & S| + |A & P|) / (|A| + |S|)`.
        precision: `|A & P| / |A|`.
        recall: `|A & S| / |S|`.
    """

    error: Tensor
    precision: Tensor
    recall: Tensor


def alignment_scores(predicted: Tensor, links: Tensor, group: Tensor) -> AlignmentScores:
    """Scores of the predicted links A of each of G groups of rows, such as sentences.

    Args:
        predicted: Whether a row's target token is linked to each source token, (R, N) bool.
        links: The known links, (R, N): `SURE` for S, `POSSIBLE`, or 0; P are the first two.
        group: Group of each row, (R,) long, 0 to G - 1.

    Example:
        >>> predicted = torch.tensor([[True, False], [False, True]])
        >>> links = torch.tensor([[2, 0], [1, 0]])
        >>> alignment_scores(predicted, links, torch.tensor([0, 0])).error.item()
        0.33333333333333337
    """
    groups = int(group.amax()) + 1 if len(group) else 0
    sure, possible = links == SURE, links > 0
    parts = (predicted & sure, predicted & possible, predicted, sure)
    counts = torch.stack([part.sum(-1).double() for part in parts], dim=-1)
    totals = counts.new_zeros(groups, 4).index_add(0, group, counts)
    hit_sure, hit, chosen, known = totals.unbind(-1)
    return AlignmentScores(1 - (hit_sure + hit) / (chosen + known), hit / chosen, hit_sure / known)
