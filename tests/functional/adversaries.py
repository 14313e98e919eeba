"""Instances to look for adversaries of, and plain ways to measure what is found."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attnlight.functional import masked_softmax, read, total_variation

KINDS = ["random", "sharp", "uniform", "zeros", "one", "equal logits", "extreme", "few values"]


def case(
    kind: str, rows: int, items: int, classes: int = 2, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, item logits and a mask of all lengths from 1."""
    random = torch.Generator().manual_seed(seed)
    mask = torch.arange(items) < 1 + torch.arange(rows)[:, None] % items
    scores = torch.randn(rows, items, dtype=torch.float64, generator=random)
    logits = 2 * torch.randn(rows, items, classes, dtype=torch.float64, generator=random)
    if kind == "sharp":
        scores *= 6
    elif kind == "uniform":
        scores *= 0
    elif kind == "zeros":
        scores[torch.rand(rows, items, generator=random) < 0.5] = -2000.0
    elif kind == "one":
        scores[:, 0] = scores.exp().sum(-1).log() + math.log(1e8)
    elif kind == "equal logits":
        logits[:] = logits[:, :1]
    elif kind == "extreme":
        logits *= 1e4
    elif kind == "few values":
        scores, logits = scores.round(), logits.round()
    return masked_softmax(scores, mask), logits, mask


def readouts(rows: int, items: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, item logits and a mask of rows that are all of the same length."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, items, dtype=torch.float64, generator=random)
    logits = 2 * torch.randn(rows, items, classes, dtype=torch.float64, generator=random)
    return scores.softmax(-1), logits, torch.ones(rows, items, dtype=torch.bool)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """By its definition, to 1e-15 or so in double precision."""
    p, q = torch.broadcast_tensors(p, q)
    middle = ((p + q) / 2).clamp(min=torch.finfo(p.dtype).tiny)
    return (torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)).sum(-1) / 2


def moved(adversary: Tensor, weights: Tensor, logits: Tensor) -> Tensor:
    """Total variation distance between the predictions of two attentions."""
    one, other = read(adversary, logits).double(), read(weights, logits).double()
    return total_variation(one.softmax(-1), other.softmax(-1))


def require_kept(
    found: tuple[Tensor, ...],
    weights: Tensor,
    mask: Tensor,
    readout: Callable[[Tensor], Tensor],
    epsilon: float,
) -> None:
    """Adversaries are attention over items that keeps the prediction, at the JS that is said."""
    adversary, js, *upper = found
    assert adversary.dtype == js.dtype == torch.float64
    assert (adversary >= 0).all()
    assert (adversary[~mask] == 0).all()
    torch.testing.assert_close(adversary.sum(-1), torch.ones_like(js), rtol=1e-9, atol=0)
    torch.testing.assert_close(js, jensen_shannon(adversary, weights), rtol=1e-9, atol=1e-13)
    after, before = readout(torch.stack([adversary, weights], dim=1)).softmax(-1).unbind(1)
    assert (total_variation(after, before) <= epsilon * (1 + 1e-9) + 1e-12).all()
    for bound in upper:
        assert (js <= bound).all()
        assert (bound <= math.log(2)).all()
