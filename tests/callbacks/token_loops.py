"""Loops over the tokens of a sentence, of all heads and of each: change attention and read."""

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan

import torch
from scipy.stats import kendalltau, spearmanr
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import (
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    SingleErasure,
)
from attnlight.functional import permutations
from attnlight.functional.ranking import random_others, random_rankings
from attnlight.models import SelfAttentionTagger
from tests.bases import one_text
from tests.benchmarks.rivals import searched_attention
from tests.functional.adversaries import jensen_shannon

SCORES = ("attention", "gradient", "gradient_x_attention")
# Measures by name, each of all heads together and then of each.
Found = dict[str, list[float]]
Loop = Callable[["Sentence", int], Found]  # of a token of a sentence
Scores = Tensor | Sequence[float]

_ALL = slice(None)
_TIE = 1e-5  # of the largest: what the tests take for rounding


class Sentence:
    """A sentence, each of whose tokens can be given other attention and read alone."""

    def __init__(self, model: SelfAttentionTagger, batch: TextBatch) -> None:
        self.model, self.batch = model, batch
        self.output = model(batch)
        _, _, values, _ = model.attention(model.norm(self.output.states), batch.mask)
        self.values = values[0]
        self.index = int(batch.index)

    def __len__(self) -> int:
        return len(self.output.rows)

    def read(self, token: int, weights: Tensor) -> Tensor:
        """Logits (C,), or (K, C), of a token's attention (H, N), or K of them (K, H, N)."""
        contexts = (weights.unsqueeze(-2) @ self.values).flatten(-3)
        logits: Tensor = self.model.decoder(contexts, self.output.states[0, token])
        return logits

    def ways(self) -> list[slice]:
        """All heads together, then each if there are several."""
        heads = len(self.values)
        return [_ALL, *(slice(head, head + 1) for head in range(heads) if heads > 1)]

    def each_way(self, measure: Callable[[slice], dict[str, float]]) -> Found:
        """What is measured of all heads together, then of each."""
        found = [measure(heads) for heads in self.ways()]
        return {name: [one[name] for one in found] for name in found[0]}

    def without(self, item: int) -> Tensor:
        """Logits (N - 1, C) of the sentence encoded without one of its items."""
        left = [place for place in range(len(self)) if place != item]
        short = self.batch.apply(lambda v: v if v.ndim == 1 else v[:, left])
        logits: Tensor = self.model(short).logits
        return logits


def tokens_of(
    model: SelfAttentionTagger, batch: TextBatch, sentences: int | None = None
) -> list[tuple[Sentence, int]]:
    """The tokens of all sentences of a batch, or of the first."""
    with torch.no_grad():
        every = [Sentence(model, one_text(batch, row)) for row in range(len(batch))[:sentences]]
    return [(sentence, token) for sentence in every for token in range(len(sentence))]


def measured(
    test: InterpretabilityTest, batch: TextBatch, output: AttentionOutput, model: AttentionModel
) -> dict[str, Tensor]:
    """What a test measures of a batch, with gradients where it needs them."""
    with torch.set_grad_enabled(test.needs_gradients):
        return dict(test.measure(batch, output, model))


def columns_of(
    test: InterpretabilityTest, model: AttentionModel, batch: TextBatch
) -> dict[str, Tensor]:
    """What a test measures of a batch that a model reads."""
    with torch.no_grad():
        output = model(batch)
    return measured(test, batch, output, model)


def paired(columns: Mapping[str, Tensor], found: Sequence[Found]) -> list[tuple[float, float]]:
    """The test's and the loop's numbers of the first rows: of all heads together and of each."""
    pairs: list[tuple[float, float]] = []
    for row, numbers in enumerate(found):
        for name, values in numbers.items():
            ours = [float(columns[name][row])]
            for by_head in (f"{name}_by_head", f"{name}_heads"):
                if by_head in columns:
                    ours += columns[by_head][row].tolist()
            pairs += zip(ours, values, strict=True)
    return pairs


def shuffled(test: AttentionPermutation, sentence: Sentence, token: int) -> Found:
    """What a test measures: read the token under one shuffle after the other."""
    size, rows = torch.tensor([len(sentence)]), torch.tensor([[sentence.index, 0]])
    orders = permutations(size, rows, test.draws, test.seed)[0]
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    before, decision = logits.softmax(-1), int(logits.argmax())

    def moved(heads: slice) -> dict[str, float]:
        drawn = orders if heads == _ALL else orders[: test.head_draws]
        tvd, js, flips = [], [], []
        for order in drawn:
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

    uniform = torch.full_like(own, 1 / own.shape[-1])
    after = sentence.read(token, uniform).softmax(-1)
    return sentence.each_way(moved) | {"uniform_tvd": [float((after - before).abs().sum() / 2)]}


def erased_alone(test: SingleErasure, sentence: Sentence, token: int) -> Found:
    """What a test measures: erase one item after the other."""
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    before, decision = logits.double().softmax(-1), int(logits.argmax())
    slope, items = gradient(test, sentence, token), range(len(sentence))
    whole, rows = torch.ones(1, len(sentence), dtype=torch.bool), sentence.output.rows[[token]]

    def moved(heads: slice) -> dict[str, float]:
        js, flips, share = [], [], own[heads].mean(0).tolist()
        for item in items:
            weights = own.clone()
            weights[heads, item] = 0.0
            after = sentence.read(token, renormalised(weights, heads)).double().softmax(-1)
            js.append(float(jensen_shannon(after, before)))
            flips.append(int(after.argmax()) != decision)
        ranks = levels(torch.tensor(js, dtype=torch.float64)).tolist()
        scores = scores_of(own, slope, heads)
        tops = [int(levels(values).argmax()) for values in scores.values()]
        drawn = {
            kind: random_others(whole, rows, torch.tensor([tops]), test.seed, released=released)[0]
            for kind, released in (("drawn", False), ("released", True))[: 1 + test.released]
        }
        found = {}
        for number, (score, top) in enumerate(zip(scores, tops, strict=True)):
            others = [item for item in items if item != top]
            found |= {
                f"flip_top_{score}": float(flips[top]),
                f"flip_other_expected_{score}": _mean([flips[item] for item in others]),
                f"delta_weight_expected_{score}": share[top] - _mean([share[i] for i in others]),
                f"delta_js_expected_{score}": js[top] - _mean([js[item] for item in others]),
                f"outdone_expected_{score}": _mean([ranks[item] > ranks[top] for item in others]),
            }
            for kind, places in drawn.items():
                other = int(places[number])
                found |= {
                    f"flip_other_{kind}_{score}": float(flips[other]),
                    f"delta_weight_{kind}_{score}": share[top] - share[other],
                    f"delta_js_{kind}_{score}": (js[top] - js[other])
                    * (ranks[top] != ranks[other]),
                }
        return found if len(items) > 1 else dict.fromkeys(found, nan)

    return sentence.each_way(moved)


def erased_in_turn(test: DecisionFlip, sentence: Sentence, token: int) -> Found:
    """What a test measures: erase item after item of each ranking until the decision flips."""
    whole, rows = torch.ones(1, len(sentence), dtype=torch.bool), [[sentence.index, token]]
    random = random_rankings(whole, torch.tensor(rows), test.draws, test.seed)[0]
    uniform = test.emptied == "uniform"
    own, items = sentence.output.weights[token], set(range(len(sentence)))
    slope = gradient(test, sentence, token)

    def removed(heads: slice) -> dict[str, float]:
        draws = [order.tolist() for order in (random if heads == _ALL else random[:1])]
        orders = {
            score: [levels(values).argsort(descending=True, stable=True).tolist()]
            for score, values in scores_of(own, slope, heads).items()
        }
        flips = {
            name: [first_flip(sentence, token, heads, order, uniform) for order in every]
            for name, every in {**orders, "random": draws}.items()
        }
        orders |= {"random": draws, "random_first": draws[:1]}
        flips["random_first"] = flips["random"][:1]
        fewest, weights = fewest_erased(sentence, token, heads, uniform), own[heads].mean(0)
        columns = {"minimal_count": fewest}
        for name, every in orders.items():
            pairs = zip(flips[name], every, strict=True)
            gone = [(n, order[:n]) for n, order in pairs if n > 0]
            count = _mean([n for n, _ in gone])
            left = [float(weights[[*items.difference(erased)]].sum()) for _, erased in gone]
            columns |= {
                f"removed_count_{name}": count,
                f"removed_fraction_{name}": count / len(weights),
                f"removed_mass_{name}": _mean(
                    [float(weights[erased].sum() / weights.sum()) for _, erased in gone]
                ),
                f"needs_all_{name}": _mean([not mass > 0 for mass in left]),
                f"never_flips_{name}": _mean([n < 0 for n in flips[name]]),
            }
            if name != "random_first":
                columns[f"excess_{name}"] = count - fewest
        return columns

    return sentence.each_way(removed)


def first_flip(
    sentence: Sentence, token: int, heads: slice, order: Sequence[int], uniform: bool
) -> int:
    """Items of an order erased when the decision changes, -1 if it does not."""
    weights = sentence.output.weights[token].clone()
    decision = int(sentence.output.logits[token].argmax())
    for number, item in enumerate(order, start=1):
        weights[heads, item] = 0.0
        logits = sentence.read(token, renormalised(weights, heads, uniform))
        if int(logits.argmax()) != decision:
            return number
    return -1


def fewest_erased(sentence: Sentence, token: int, heads: slice, uniform: bool) -> float:
    """The fewest items that change the decision; NaN if none do or the readout is not affine."""
    items = sentence.output.item_logits
    if items is None:
        return nan
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    terms = own.unsqueeze(-1) * items[token]  # (H, N, C)
    # For one head the sum of the others is a number for each class.
    others = logits - terms[heads].sum((0, 1))
    terms = (terms[heads] + own[heads].unsqueeze(-1) * others).sum(0)
    decision, counts = int(logits.argmax()), list[int]()
    for rival in range(len(logits)):
        if rival != decision:
            lead = terms[:, decision] - terms[:, rival]
            order = lead.argsort(descending=True, stable=True).tolist()
            counts.append(first_flip(sentence, token, heads, order, uniform))
    return float(min((count for count in counts if count > 0), default=nan))


def correlated(_: ImportanceCorrelation, sentence: Sentence, token: int) -> Found:
    """What a test measures: differentiate, and delete one item after the other."""
    own, logits = sentence.output.weights[token], sentence.output.logits[token]
    scores = {
        "input_gradient": input_gradient(sentence, token, sentence.output.weights),
        "input_gradient_attached": input_gradient(sentence, token, None),
    }
    before, moved = logits.double().softmax(-1), torch.full_like(own[0], nan).double()
    others = [item for item in range(len(sentence)) if item != token]
    for item in others:
        after = sentence.without(item)[token - (token > item)].double().softmax(-1)
        moved[item] = (after - before).abs().sum() / 2
    scores["loo"] = moved
    kept = {name: others if name == "loo" else list(range(len(own[0]))) for name in scores}
    found = {
        f"tau_attention_{name}": [
            tau(attention[kept[name]], values[kept[name]]) for attention in (own.mean(0), *own)
        ]
        for name, values in scores.items()
    }
    for name in ("input_gradient", "input_gradient_attached"):
        found[f"tau_{name}_loo"] = [tau(scores[name][others], moved[others])]
    return found


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


def searched(sentence: Sentence, token: int, epsilon: float, steps: int = 500) -> list[float]:
    """The largest JS that Jain & Wallace's search finds for each head, 0 where it finds none."""
    own = sentence.output.weights[token]
    before = sentence.output.logits[token].softmax(-1)
    best = []
    for head, alone in enumerate(own):

        def moved(attentions: Tensor) -> Tensor:
            weights = own.repeat(attentions.shape[1], 1, 1)
            weights[:, head] = attentions[0]  # noqa: B023
            return (sentence.read(token, weights).softmax(-1) - before).abs().sum(-1) / 2

        whole = torch.ones(1, len(sentence), dtype=torch.bool)
        found = searched_attention(alone[None, None], whole, moved, epsilon, steps=steps)[0]
        js = jensen_shannon(found, alone)
        best.append(float(js.masked_fill(moved(found[None]) > epsilon, 0.0).max()))
    return best


def renormalised(weights: Tensor, heads: slice, uniform: bool = False) -> Tensor:
    """Attention (H, N) of which some heads sum to 1 again; where nothing is left 0, or uniform."""
    left = weights[heads].sum(-1, keepdim=True)
    emptied = torch.full_like(left, uniform / weights.shape[-1])
    whole = weights.clone()
    whole[heads] = torch.where(left > 0, weights[heads] / torch.where(left > 0, left, 1.0), emptied)
    return whole


def gradient(test: SingleErasure | DecisionFlip, sentence: Sentence, token: int) -> Tensor:
    """Gradient (H, N) of the target's probability by the attention weights, or its size."""
    best = sorted(
        range(len(sentence.output.logits[token])), key=lambda c: -sentence.output.logits[token, c]
    )
    chosen = {None: best[0], "runner_up": best[1]}.get(test.target, test.target)
    with torch.enable_grad():
        free = sentence.output.weights[token].detach().clone().requires_grad_()
        probabilities = sentence.read(token, free).double().softmax(-1)
        (slope,) = torch.autograd.grad(probabilities[chosen], free)
    return slope.abs() if test.gradient == "absolute" else slope


def scores_of(own: Tensor, slope: Tensor, heads: slice) -> dict[str, Tensor]:
    """Each of `SCORES` (N,), the mean over some heads."""
    found = (own, slope, slope * own)
    return {name: values[heads].mean(0) for name, values in zip(SCORES, found, strict=True)}


def levels(scores: Tensor) -> Tensor:
    """Ranks (N,) of scores, of which those that are within rounding of the next are one."""
    ordered, order = scores.sort()
    steps = (ordered.diff() > _TIE * scores.abs().max()).cumsum(0)
    return torch.zeros_like(order).index_copy(0, order[1:], steps)


def tau(one: Scores, other: Scores) -> float:
    """Kendall's tau-b by scipy, with what is within rounding of the next made equal."""
    if len(one) < 2:
        return nan
    ranks = [levels(torch.as_tensor(scores, dtype=torch.float64)) for scores in (one, other)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(kendalltau(*ranks).statistic)


def rho(one: Tensor, other: Tensor) -> float:
    """Spearman's correlation by scipy, with ties alike; undefined where a score is."""
    if len(one) < 2 or one.isnan().any() or other.isnan().any():
        return nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(spearmanr(levels(one), levels(other)).statistic)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else nan


LOOPS: dict[type, Callable[..., Found]] = {
    AttentionPermutation: shuffled,
    SingleErasure: erased_alone,
    DecisionFlip: erased_in_turn,
    ImportanceCorrelation: correlated,
}


def loop_of(test: InterpretabilityTest) -> Loop:
    """The loop that a test stands against."""
    return partial(LOOPS[type(test)], test)
