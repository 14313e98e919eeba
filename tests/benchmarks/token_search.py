"""Different attention with the same prediction, looked for a token and a head at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.benchmarks.token_rivals import Sentence, jensen_shannon


def searched(
    sentence: Sentence, token: int, epsilon: float, starts: int = 5, steps: int = 500
) -> list[float]:
    """The largest JS that Jain and Wallace's search finds for each head, as the released code does.

    One token and one head at a time, several attentions at once; 0 where it ends with none that
    keeps the prediction.
    """
    own = sentence.output.weights[token]
    before = sentence.output.logits[token].softmax(-1)
    one, other = torch.triu_indices(starts, starts, 1)

    def read(head: int, attentions: Tensor) -> Tensor:
        weights = own.repeat(starts, 1, 1)
        weights[:, head] = attentions
        return (sentence.read(token, weights).softmax(-1) - before).abs().sum(-1) / 2

    best = []
    for head in range(sentence.heads):
        scores = nn.Parameter(3 * torch.randn(starts, len(sentence), dtype=own.dtype))
        optimizer = torch.optim.Adam([scores], lr=0.01, amsgrad=True)
        for _ in range(steps):
            with torch.enable_grad():
                found = scores.softmax(-1)
                moved = read(head, found)
                gain = jensen_shannon(found, own[head]) - 500 * (moved - epsilon).relu()
                between = 2 * jensen_shannon(found[one], found[other]) / starts**2
                loss = -gain.sum() - between.sum()
            (scores.grad,) = torch.autograd.grad(loss, scores)
            optimizer.step()
        found = scores.detach().softmax(-1)
        kept = read(head, found) <= epsilon
        js = jensen_shannon(found, own[head]).masked_fill(~kept, 0.0)
        best.append(float(js.max()))
    return best


def on_one_item(sentence: Sentence, token: int, epsilon: float) -> list[float]:
    """The largest JS of each head's attention on a single item that keeps the prediction; 0: none."""
    own = sentence.output.weights[token]
    before = sentence.output.logits[token].softmax(-1)
    best = [0.0] * sentence.heads
    for head in range(sentence.heads):
        for item in range(len(sentence)):
            weights = own.clone()
            weights[head] = 0.0
            weights[head, item] = 1.0
            after = sentence.read(token, weights).softmax(-1)
            if float((after - before).abs().sum() / 2) <= epsilon:
                best[head] = max(best[head], float(jensen_shannon(weights[head], own[head])))
    return best
