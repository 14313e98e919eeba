"""Loops over the tokens of a sentence that do what the tests do on tokens: what one writes first.

A token at a time, of all heads together and of each head with the others held: change its attention,
read it out, compare. The sentence is encoded once and its values are kept; a reading is of this
token alone and takes no part of the sentence anew. What depends on no change is not done again. The
measures are those that the tests log, but for draws that they record besides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from math import nan

import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.models import SelfAttentionTagger

SCORES = ("attention", "gradient", "gradient_x_attention")
# Measures by name, each of all heads together and then of each.
Found = dict[str, list[float]]

_ALL = slice(None)
_TIE = 1e-5  # of the largest: what the tests take for rounding


class Sentence:
    """A sentence, each of whose tokens can be given other attention and read alone.

    Attributes:
        model: The tagger, in evaluation mode.
        batch: The sentence, without padding.
        output: What the model says of it.
        values: What attention weighs, (H, N, D / H).
        index: Its row in the corpus.
    """

    def __init__(self, model: SelfAttentionTagger, batch: TextBatch) -> None:
        self.model, self.batch = model, batch
        self.output = model(batch)
        self.values = model.attention.values(model.norm(self.output.states))[0]
        self.index = int(batch.index)

    def __len__(self) -> int:
        return len(self.output.rows)

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return len(self.values)

    def read(self, token: int, weights: Tensor) -> Tensor:
        """Logits (C,), or (K, C), of a token's attention (H, N), or K of them (K, H, N)."""
        contexts = (weights.unsqueeze(-2) @ self.values).flatten(-3)
        logits: Tensor = self.model.decoder(contexts, self.output.states[0, token])
        return logits

    def ways(self) -> Iterator[slice]:
        """All heads together, then each."""
        yield _ALL
        for head in range(self.heads):
            yield slice(head, head + 1)


def shuffled(
    sentence: Sentence, token: int, orders: Sequence[Tensor], head_orders: Sequence[Tensor]
) -> Found:
    """What `AttentionPermutation` measures: read the token under one shuffle after the other.

    Args:
        sentence: The sentence.
        token: Which token of it.
        orders: Orders (N,) of its items for all heads together.
        head_orders: Those for each head.
    """
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    before, decision = logits.softmax(-1), int(logits.argmax())

    def moved(heads: slice) -> dict[str, float]:
        tvd, js, flips = [], [], []
        for order in orders if heads == _ALL else head_orders:
            weights = own.clone()
            weights[heads] = own[heads, order]
            after = sentence.read(token, weights).softmax(-1)
            tvd.append(float((after - before).abs().sum() / 2))
            js.append(float(jensen_shannon(after, before)))
            flips.append(int(after.argmax()) != decision)
        return {
            "median_tvd": statistics.median(tvd),
            "median_js": statistics.median(js),
            "flip_rate": statistics.fmean(flips),
        }

    return _each_way(sentence, moved)


def shuffled_at_once(sentence: Sentence, token: int, orders: Tensor, head_orders: Tensor) -> Found:
    """The same, all shuffles (K, N) of a token or of one of its heads read at once."""
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    before, decision = logits.softmax(-1), logits.argmax()

    def moved(heads: slice) -> dict[str, float]:
        drawn = orders if heads == _ALL else head_orders
        weights = own.repeat(len(drawn), 1, 1)
        weights[:, heads] = own[heads, drawn].transpose(0, 1)
        after = sentence.read(token, weights).softmax(-1)
        return {
            "median_tvd": float(((after - before).abs().sum(-1) / 2).quantile(0.5)),
            "median_js": float(jensen_shannon(after, before).quantile(0.5)),
            "flip_rate": float((after.argmax(-1) != decision).double().mean()),
        }

    return _each_way(sentence, moved)


def erased_alone(sentence: Sentence, token: int) -> Found:
    """What `SingleErasure` measures: erase one item after the other."""
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    before, decision = logits.double().softmax(-1), int(logits.argmax())
    slope = gradient(sentence, token)

    def moved(heads: slice) -> dict[str, float]:
        js, flips = [], []
        for item in range(len(sentence)):
            weights = own.clone()
            weights[heads, item] = 0.0
            after = sentence.read(token, renormalised(weights, heads)).double().softmax(-1)
            js.append(float(jensen_shannon(after, before)))
            flips.append(int(after.argmax()) != decision)
        found = {}
        for score, values in scores_of(own, slope, heads).items():
            top = int(levels(values).argmax())
            others = [item for item in range(len(sentence)) if item != top]
            above = js[top] + _TIE * max(js)
            found |= {
                f"flip_top_{score}": float(flips[top]),
                f"flip_other_expected_{score}": _mean([flips[item] for item in others]),
                f"delta_js_expected_{score}": js[top] - _mean([js[item] for item in others]),
                f"outdone_expected_{score}": _mean([js[item] > above for item in others]),
            }
        return found if len(sentence) > 1 else dict.fromkeys(found, nan)

    return _each_way(sentence, moved)


def erased_in_turn(
    sentence: Sentence, token: int, random: Sequence[Tensor], *, minimum: bool = True
) -> Found:
    """What `DecisionFlip` measures: erase item after item of each ranking until the decision flips.

    Args:
        sentence: The sentence.
        token: Which token of it.
        random: Random orders (N,) of its items, of which a head alone takes the first.
        minimum: Also look for the fewest items, where the readout is affine.
    """
    own = sentence.output.weights[token]
    slope = gradient(sentence, token)

    def removed(heads: slice) -> dict[str, float]:
        orders = {
            score: levels(values).argsort(descending=True, stable=True).tolist()
            for score, values in scores_of(own, slope, heads).items()
        }
        draws = random if heads == _ALL else random[:1]
        drawn = [first_flip(sentence, token, heads, order.tolist()) for order in draws]
        found = {name: first_flip(sentence, token, heads, order) for name, order in orders.items()}
        found["random_first"] = drawn[0]
        fewest = fewest_erased(sentence, token, heads) if minimum else None
        columns = {"minimal_count": nan if fewest is None else float(fewest)}
        for name, flips in (*found.items(), ("random", drawn)):
            each = [flips] if isinstance(flips, int) else flips
            order = orders.get(name)
            every = [order] if order is not None else [o.tolist() for o in draws]
            columns |= _described(own[heads].mean(0), each, every, name, columns["minimal_count"])
        return columns

    return _each_way(sentence, removed)


def _described(
    weights: Tensor, flips: Sequence[int], orders: Sequence[list[int]], name: str, fewest: float
) -> dict[str, float]:
    """Columns of a ranking, or the means over several, from when each flips; -1: never."""
    gone = [(n, order[:n], order[n:]) for n, order in zip(flips, orders, strict=False) if n > 0]
    counts = _mean([n for n, _, _ in gone])
    columns = {
        f"removed_fraction_{name}": counts / len(weights),
        f"removed_mass_{name}": _mean([float(weights[erased].sum()) for _, erased, _ in gone]),
        f"needs_all_{name}": _mean([not float(weights[left].sum()) > 0 for _, _, left in gone]),
        f"never_flips_{name}": _mean([n < 0 for n in flips]),
    }
    return columns if name == "random_first" else columns | {f"excess_{name}": counts - fewest}


def first_flip(
    sentence: Sentence, token: int, heads: slice, order: Sequence[int], most: int | None = None
) -> int:
    """Items of an order erased when the decision changes, -1 if it does not within `most`."""
    weights = sentence.output.weights[token].clone()
    decision = int(sentence.output.logits[token].argmax())
    for number, item in enumerate(order[:most], start=1):
        weights[heads, item] = 0.0
        logits = sentence.read(token, renormalised(weights, heads))
        if int(logits.argmax()) != decision:
            return number
    return -1


def fewest_erased(sentence: Sentence, token: int, heads: slice) -> int | None:
    """The fewest items that change the decision: for each other class those that speak most for it not.

    None where the readout is not affine, or nothing changes it.
    """
    items = sentence.output.item_logits
    if items is None:
        return None
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    terms = own.unsqueeze(-1) * items[token]  # (H, N, C)
    # To a head alone what the others say is one number for each class.
    others = logits - terms[heads].sum((0, 1))
    terms = (terms[heads] + own[heads].unsqueeze(-1) * others).sum(0)
    decision, fewest = int(logits.argmax()), None
    for rival in range(len(logits)):
        if rival != decision:
            lead = terms[:, decision] - terms[:, rival]
            order = lead.argsort(descending=True, stable=True).tolist()
            most = None if fewest is None else fewest - 1
            found = first_flip(sentence, token, heads, order, most)
            fewest = found if found > 0 else fewest
    return fewest


def renormalised(weights: Tensor, heads: slice) -> Tensor:
    """Attention (H, N) of which some heads sum to 1 again, or are 0 where nothing is left."""
    left = weights[heads].sum(-1, keepdim=True)
    whole = weights.clone()
    whole[heads] /= torch.where(left > 0, left, 1.0)
    return whole


def gradient(sentence: Sentence, token: int) -> Tensor:
    """Gradient (H, N) of the highest probability by the attention weights."""
    with torch.enable_grad():
        free = sentence.output.weights[token].detach().clone().requires_grad_()
        highest = sentence.read(token, free).double().softmax(-1).max()
        (slope,) = torch.autograd.grad(highest, free)
    return slope


def scores_of(own: Tensor, slope: Tensor, heads: slice) -> dict[str, Tensor]:
    """Each of `SCORES` (N,), the mean over some heads."""
    found = (own, slope, slope * own)
    return {name: values[heads].mean(0) for name, values in zip(SCORES, found, strict=True)}


def levels(scores: Tensor) -> Tensor:
    """Ranks (N,) of scores, of which those that are within rounding of the next are one."""
    ordered, order = scores.sort()
    steps = (ordered.diff() > _TIE * scores.abs().max()).cumsum(0)
    return torch.zeros_like(order).index_copy(0, order[1:], steps)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """By its definition, over the last dimension."""
    middle = ((p + q) / 2).clamp(min=1e-30).log()
    logs = (p.clamp(min=1e-30).log() - middle, q.clamp(min=1e-30).log() - middle)
    return (p * logs[0] + q * logs[1]).sum(-1) / 2


def _each_way(sentence: Sentence, measure: Callable[[slice], dict[str, float]]) -> Found:
    each = [measure(heads) for heads in sentence.ways()]
    return {name: [one[name] for one in each] for name in each[0]}


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else nan
