"""What `ImportanceCorrelation` measures, a token at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan

import torch
from scipy.stats import kendalltau
from torch import Tensor

from tests.benchmarks.token_rivals import Found, Sentence, levels


def correlated(
    sentence: Sentence, token: int, delete: Callable[[int], Tensor] | None = None
) -> Found:
    """What `ImportanceCorrelation` measures: differentiate, and delete one item after the other.

    Args:
        sentence: The sentence.
        token: Which token of it.
        delete: From an item to the logits (N - 1, C) without it; None: the sentence is encoded anew.
    """
    delete = delete or partial(deleted, sentence)
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    scores = {
        "input_gradient": input_gradient(sentence, token, sentence.output.weights),
        "input_gradient_attached": input_gradient(sentence, token, None),
    }
    before, moved = logits.double().softmax(-1), torch.full_like(own[0], nan).double()
    others = [item for item in range(len(sentence)) if item != token]
    for item in others:
        after = delete(item)[token - (token > item)].double().softmax(-1)
        moved[item] = (after - before).abs().sum() / 2
    scores["loo"] = moved
    kept = {name: others if name == "loo" else list(range(len(own[0]))) for name in scores}
    found = {
        f"tau_attention_{name}": [
            _tau(attention[kept[name]], values[kept[name]]) for attention in (own.mean(0), *own)
        ]
        for name, values in scores.items()
    }
    for name in ("input_gradient", "input_gradient_attached"):
        found[f"tau_{name}_loo"] = [_tau(scores[name][others], moved[others])]
    return found


def deleted(sentence: Sentence, item: int) -> Tensor:
    """Logits (N - 1, C) of the sentence encoded without one of its items."""
    left = [place for place in range(len(sentence)) if place != item]
    short = sentence.batch.apply(lambda v: v if v.ndim == 1 else v[:, left])
    logits: Tensor = sentence.model(short).logits
    return logits


def input_gradient(sentence: Sentence, token: int, weights: Tensor | None) -> Tensor:
    """Gradient times embedding of the log odds of the token's class, absolute, (N,)."""
    with torch.enable_grad():
        embeddings = sentence.model.embed(sentence.batch).detach().requires_grad_()
        output = sentence.model(sentence.batch, weights=weights, embeddings=embeddings)
        logits = output.logits[token]
        winner = logits.argmax()
        others = logits.masked_fill(torch.arange(len(logits)) == winner, -torch.inf)
        (slope,) = torch.autograd.grad(logits[winner] - others.logsumexp(-1), embeddings)
    return (slope * embeddings.detach())[0].sum(-1).abs()


def _tau(one: Tensor, other: Tensor) -> float:
    if len(one) < 2:
        return nan
    return float(kendalltau(levels(one).numpy(), levels(other).numpy()).statistic)
