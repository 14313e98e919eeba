"""Jain and Wallace's search, against their loss written out by hand."""

import pytest
import torch
from torch import Tensor

from attnlight.functional import search_adversary
from attnlight.functional.adversary.gradient_search import normal_scores
from tests.functional.adversaries import case, jensen_shannon, moved


def by_hand_search(weights: Tensor, logits: Tensor, scores: Tensor, steps: int) -> Tensor:
    """The attentions (K, N) that Jain and Wallace's released loss leads to, for one text."""
    scores = scores.clone().requires_grad_()
    first, second, largest = (torch.zeros_like(scores) for _ in range(3))

    def js(p: Tensor, q: Tensor) -> Tensor:
        middle = (p + q) / 2
        return ((p * (p / middle).log() + q * (q / middle).log()) / 2).sum(-1)

    own = torch.sigmoid(weights @ (logits[:, 1] - logits[:, 0]))
    for step in range(1, steps + 1):
        attention = scores.exp() / scores.exp().sum(-1, keepdim=True)
        change = (torch.sigmoid(attention @ (logits[:, 1] - logits[:, 0])) - own).abs()
        loss = sum(-js(a, weights) for a in attention) + (500 * (change - 0.01).clamp(min=0)).sum()
        loss = loss - sum(js(a, b) for a in attention for b in attention) / len(scores) ** 2
        (gradient,) = torch.autograd.grad(loss, scores)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        largest = torch.maximum(largest, second)
        rate = 0.1 / (1 - 0.9**step)
        change = rate * first / ((largest / (1 - 0.999**step)).sqrt() + 1e-8)
        scores = (scores - change).detach().requires_grad_()
    return scores.detach().softmax(-1)


def test_search_is_the_released_algorithm() -> None:
    weights, logits, _ = case("random", rows=8, items=8)
    weights, logits, mask = weights[5:6, :6], logits[5:6, :6], torch.ones(1, 6).bool()
    rows = torch.tensor([[3, 0]])
    scores = 3 * normal_scores(0, rows, 1, 5, mask)[0]
    attentions = by_hand_search(weights[0], logits[0], scores, steps=60)
    change = moved(attentions, weights, logits[0].expand(5, -1, -1))
    js = jensen_shannon(attentions, weights).masked_fill(change > 0.05, 0.0)
    assert (js > 0).any()
    found = search_adversary(
        weights, logits, mask, 0.05, rows, steps=60, learning_rate=0.1, search_epsilon=0.01
    )
    assert found[1].item() == pytest.approx(js.max().item(), rel=1e-6)
    torch.testing.assert_close(found[0][0], attentions[js.argmax()], rtol=1e-6, atol=1e-9)


def test_search_returns_the_own_attention_where_nothing_else_keeps_to_epsilon() -> None:
    weights, logits, mask = case("random", rows=12, items=12)
    rows = torch.arange(24).reshape(12, 2)
    adversary, js = search_adversary(weights, logits, mask, 1e-9, rows, steps=2)
    torch.testing.assert_close(adversary, weights)
    assert (js == 0).all()


def test_search_starts_from_normal_scores() -> None:
    rows = torch.arange(2000).reshape(1000, 2)
    numbers = normal_scores(0, rows, 2, 5, torch.ones(2000, 8).bool())
    assert numbers.shape == (2000, 5, 8)
    assert numbers.isfinite().all()
    assert abs(numbers.mean().item()) < 0.02
    assert numbers.std().item() == pytest.approx(1, abs=0.02)
    assert numbers.flatten().unique().numel() > 79_990
