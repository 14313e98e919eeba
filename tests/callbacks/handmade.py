"""Outputs of no model at all, and a model that hides that their readout is affine."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.functional import masked_softmax


def output_of(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor | None = None
) -> AttentionOutput:
    """An output of R rows from weights (R, H, N), item logits (R, H, N, C) and bias."""
    rows, _, items = weights.shape
    index = torch.arange(rows)
    left = weights.sum(-1, keepdim=True)
    empty = bias.expand(rows, -1)[:, None] / weights.shape[1]
    read = (weights.unsqueeze(2) @ item_logits.nan_to_num()).squeeze(2) + (1 - left) * empty
    return AttentionOutput(
        rows=torch.stack([index, torch.zeros_like(index)], dim=1),
        logits=read.sum(1),
        weights=weights,
        item_logits=item_logits,
        bias=bias,
        mask=torch.ones(rows, items, dtype=torch.bool) if mask is None else mask,
        states=torch.empty(rows, items, 0),
    )


def random_output(
    heads: int = 1, classes: int = 3, rows: int = 60, items: int = 7, zeros: float = 0.15
) -> AttentionOutput:
    """Rows of 1 to N items at any place, some without weight, with a class that is preferred."""
    random = torch.Generator().manual_seed(classes + 10 * heads)
    mask = torch.rand(rows, items, generator=random) < 0.8
    mask[:, 2] = True
    scores = 1.5 * torch.randn(rows, heads, items, dtype=torch.float64, generator=random)
    scores = scores.masked_fill(torch.rand(scores.shape, generator=random) < zeros, -2000.0)
    logits = torch.randn(rows, heads, items, classes, dtype=torch.float64, generator=random)
    logits[..., -1] += 0.8
    bias = torch.randn(rows, classes, dtype=torch.float64, generator=random)
    return output_of(masked_softmax(scores, mask), logits, bias, mask)


def batch_of(output: AttentionOutput) -> TextBatch:
    """The batch that the output would be of."""
    return TextBatch(index=output.rows[:, 0], tokens=output.mask.long(), mask=output.mask)


class Hidden(nn.Module):
    """The readout of an output, which is affine, for tests that are not told."""

    def __init__(self, output: AttentionOutput) -> None:
        super().__init__()
        assert output.item_logits is not None
        self.items, self.bias = output.item_logits, output.bias
        self.output = replace(output, item_logits=None)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        return self.output

    def embed(self, batch: TextBatch) -> Tensor:
        return torch.empty(0)

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        items = self.items[output.rows[:, 0]]  # (R, H, N, C)
        bias = self.bias.expand(len(self.items), -1)[output.rows[:, 0]].unsqueeze(1)
        share = bias.unsqueeze(1) / weights.shape[1]
        return (weights @ (items - share)).sum(1) + bias


class Oracle:
    """One row of an output with one head or several, erased item by item in plain loops."""

    def __init__(self, output: AttentionOutput, row: int) -> None:
        assert output.item_logits is not None
        self.items = [n for n in range(output.mask.shape[1]) if output.mask[row, n]]
        self.heads = output.weights[row].tolist()
        self.logits = output.item_logits[row]
        self.bias = output.bias.expand(len(output.rows), -1)[row]
        self.weights = output.weights[row].mean(0).tolist()

    def without(self, erased: list[int]) -> Tensor:
        """Logits (C,) with these items gone and each head renormalised."""
        found = torch.zeros_like(self.bias)
        for weights, logits in zip(self.heads, self.logits, strict=True):
            left = [n for n in self.items if n not in erased and weights[n] > 0]
            mass = sum(weights[n] for n in left)
            for n in left:
                found += weights[n] / mass * logits[n]
            if not left:
                found += self.bias / len(self.heads)
        return found

    def flips(self, erased: list[int]) -> bool:
        """Whether the decision is another without these items."""
        return bool(self.without(erased).argmax() != self.without([]).argmax())

    def gradient(self) -> list[list[float]]:
        """Of the winning class's probability by the weights (H, N), by autograd."""
        free = torch.tensor(self.heads, dtype=torch.float64, requires_grad=True)
        effects = self.logits - self.bias / len(self.heads)
        logits = self.bias.clone()
        for weights, own in zip(free, effects, strict=True):
            for n in self.items:
                logits = logits + weights[n] * own[n]
        logits.softmax(-1).max().backward()  # type: ignore[no-untyped-call]
        assert free.grad is not None
        found: list[list[float]] = free.grad.tolist()
        return found

    def order(self, ranking: str, absolute: bool = False) -> list[int]:
        """The items of a row without near ties, as a ranking puts them."""
        gradient = [[abs(g) for g in own] if absolute else own for own in self.gradient()]
        by_head = {
            "attention": self.heads,
            "gradient": gradient,
            "gradient_x_attention": [
                [w * g for w, g in zip(*pair, strict=True)]
                for pair in zip(self.heads, gradient, strict=True)
            ],
        }[ranking]
        scores = [sum(own[n] for own in by_head) / len(by_head) for n in range(len(self.weights))]
        return sorted(self.items, key=lambda n: (-scores[n], n))
