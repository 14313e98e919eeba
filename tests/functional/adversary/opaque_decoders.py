"""Rows with tanh decoders, and a plain search by Adam for attention with the same prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlight.functional import opaque_adversary
from tests.functional.adversaries import jensen_shannon

EPSILON = 0.01


class Decoders(NamedTuple):
    """Rows, each with attention over items and a decoder W tanh(sum of a P + q) + b of its own."""

    weights: Tensor
    projected: Tensor
    query: Tensor
    output: Tensor
    bias: Tensor

    def read(self, given: Tensor) -> Tensor:
        """Logits (R, K, C) of attentions (R, H, K, N) of one head."""
        hidden = torch.tanh(given.squeeze(1) @ self.projected + self.query.unsqueeze(1))
        return hidden @ self.output + self.bias.unsqueeze(1)

    def part(self, rows: Tensor | slice) -> Decoders:
        """Some of the rows."""
        return Decoders(*(values[rows] for values in self))


def decoders(rows: int, items: int, classes: int, hidden: int = 16) -> Decoders:
    """Random rows, in doubt by more or less: output weights have a spread of their own in each."""
    random = torch.Generator().manual_seed(items * 100 + classes)

    def normal(deviation: float, *shape: int) -> Tensor:
        return deviation * torch.randn(rows, *shape, dtype=torch.float64, generator=random)

    spread = 0.2 + torch.rand(rows, 1, 1, dtype=torch.float64, generator=random)
    return Decoders(
        weights=normal(1.5, items).softmax(-1),
        projected=normal(1.5, items, hidden),
        query=normal(1.0, hidden),
        output=spread * normal(4 / hidden**0.5, hidden, classes),
        bias=normal(0.3, classes),
    )


def adversaries(
    model: Decoders, rows: slice = slice(None), **options: Any
) -> tuple[Tensor, Tensor]:
    """`opaque_adversary` of some rows, whose keys are their numbers."""
    keys, some = torch.arange(len(model.weights)).mul(7)[:, None].expand(-1, 2), model.part(rows)
    return opaque_adversary(
        some.weights,
        some.read,
        torch.ones_like(some.weights, dtype=torch.bool),
        EPSILON,
        part=lambda part: some.part(part).read,
        rows=keys[rows],
        **options,
    )


def by_adam(model: Decoders) -> Tensor:
    """JS (R,) that 64 starts of Adam reach, pulled back until the prediction is preserved."""
    torch.manual_seed(0)
    weights = model.weights.unsqueeze(1)
    original = model.read(weights.unsqueeze(1)).softmax(-1)
    shape = (len(weights), 64, weights.shape[-1])
    scores = 3 * torch.randn(shape) - 4 * torch.rand(*shape[:2], 1) * torch.randn(shape).abs()
    scores = scores.double().requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.08)

    def moved(attention: Tensor) -> Tensor:
        return (model.read(attention.unsqueeze(1)).softmax(-1) - original).abs().sum(-1) / 2

    for step in range(300):
        attention = scores.softmax(-1)
        excess = (moved(attention) - 0.9 * EPSILON).relu()
        loss = ((10 if step < 100 else 60) * excess - jensen_shannon(attention, weights)).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    best, attention = torch.zeros(shape[:2]).double(), scores.detach().softmax(-1)
    for share in torch.linspace(0, 1, 33).double():
        pulled = attention + share * (weights - attention)
        kept = moved(pulled) <= EPSILON
        best = torch.maximum(best, jensen_shannon(pulled, weights) * kept)
    return best.amax(-1)
