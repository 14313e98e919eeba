"""Faithfulness in plain Python: a text and a set of items at a time, by the model alone."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch

from attnlight.attribution import build_attribution
from attnlight.batch import BOS, EOS, PAD, UNK, AttentionModel, AttentionOutput, TextBatch
from attnlight.functional import random_rankings
from attnlight.functional.readout.instances import empty_logits
from tests.callbacks.token_loops import levels
from tests.data.test_word_sampler import word_sampler

RESAMPLES = 2
Prediction = Callable[[frozenset[int]], float]
_TOKENS = {"unk": UNK, "pad": PAD}


def reduced(
    single: TextBatch, gone: Sequence[int], replacement: str, drawn: Any = None
) -> TextBatch:
    """A text whose items at some places are deleted or replaced, by tokens that may be drawn."""
    copy = single.apply(torch.clone)
    if replacement == "delete":
        left = [place for place in range(copy.tokens.shape[1]) if place not in gone]
        copy.labels = None
        copy.tokens, copy.mask = copy.tokens[:, left], copy.mask[:, left]
        copy.extras = {name: values[:, left] for name, values in copy.extras.items()}
        return copy
    for place in gone:
        words = copy.tokens[0, place].reshape(-1)
        for number, token in enumerate(words.tolist()):
            inside = bool(copy.mask[0, place].reshape(-1)[number])
            if inside and token not in (BOS, EOS):
                own = None if drawn is None else drawn[0, place].reshape(-1)[number]
                words[number] = own if drawn is not None else _TOKENS[replacement]
        copy.tokens[0, place] = words.reshape(copy.tokens[0, place].shape)
        for values in copy.extras.values():
            values[0, place] = 0
    return copy


def erased(model: AttentionModel, output: AttentionOutput, row: int, gone: Sequence[int]) -> list:
    """Logits of a row whose items at some places are erased from attention."""
    every = output.weights.clone()
    every[row, :, list(gone)] = 0
    if not (every[row] > 0).any():
        return empty_logits(model, output).expand(len(output.rows), -1)[row].tolist()
    for head, weights in enumerate(every[row]):
        every[row, head] = weights / (float(weights.sum()) or 1.0)
    return model.readout(output, every.unsqueeze(2))[row, 0].detach().tolist()


def predictor(
    model: AttentionModel, single: TextBatch, row: int, items: Sequence[int], replacement: str
) -> Prediction:
    """The probability of the row's predicted class when only some of the items remain."""
    with torch.no_grad():
        output = model(single)
    target, position = int(output.logits[row].argmax()), int(output.rows[row, 1])
    tokens: Any = [None]
    if replacement == "resample":
        tokens = word_sampler().draw(single, RESAMPLES, seed=0)

    def share(logits: list[float]) -> float:
        highest = max(logits)
        exponents = [math.exp(logit - highest) for logit in logits]
        return exponents[target] / sum(exponents)

    @cache
    def probability(left: frozenset[int]) -> float:
        gone = [place for place in items if place not in left]
        attended = {int(place) for place in output.mask[row].nonzero()}
        if replacement == "attention":
            return share(erased(model, output, row, gone))
        if replacement == "delete" and not attended - set(gone):
            return share(empty_logits(model, output).expand(len(output.rows), -1)[row].tolist())
        before = sum(place < position for place in gone) if replacement == "delete" else 0
        several = []
        for drawn in tokens:
            with torch.no_grad():
                found = model(reduced(single, gone, replacement, drawn))
            (same,) = (found.rows[:, 1] == position - before).nonzero()
            several.append(share(found.logits[same[0]].tolist()))
        return sum(several) / len(several)

    return probability


def ranked(scores: Sequence[float], items: Sequence[int]) -> list[int]:
    """Items by descending score, tied ones from left to right."""
    ranks = levels(torch.tensor([scores[place] for place in items], dtype=torch.float64)).tolist()
    groups = dict(zip(items, ranks, strict=True))
    return sorted(items, key=lambda place: (-groups[place], place))


def faithfulness(
    model: AttentionModel,
    single: TextBatch,
    row: int,
    methods: Sequence[str | dict[str, Any]],
    shares: Sequence[Fraction],
    replacement: str = "delete",
    draws: int = 5,
    own: bool = False,
) -> dict[str, list[float]]:
    """Each measure of each method and of random at each share, by `<measure>_<method>`."""
    with torch.no_grad():
        output = model(single)
    place = int(output.rows[row, 1])
    items = [int(i) for i in output.mask[row].nonzero() if not (own and int(i) == place)]
    probability = predictor(model, single, row, items, replacement)
    orders: dict[str, list[list[int]]] = {}
    for name in methods:
        method = build_attribution(name)
        scores = method(model, single, output, output.logits.argmax(-1))[row].tolist()
        scores = scores if method.signed else [abs(score) for score in scores]
        orders[method.label] = [ranked(scores, items)]
    if len(items) > 7:
        mask = torch.zeros_like(output.mask[row : row + 1])
        mask[0, items] = True
        drawn = random_rankings(mask, output.rows[row : row + 1], draws, seed=0)[0]
        orders["random"] = [order[: len(items)].tolist() for order in drawn]
    every = frozenset(items)
    full, empty = probability(every), probability(frozenset())
    values: dict[str, list[float]] = {}
    for share in shares:
        count = max(1, math.ceil(share * len(items)))
        if len(items) <= 7:  # the mean over all orders is that over all sets of first items
            orders["random"] = [list(first) for first in itertools.combinations(items, count)]
        for name, of_name in orders.items():
            rest = [full - probability(every.difference(order[:count])) for order in of_name]
            top = [full - probability(frozenset(order[:count])) for order in of_name]
            found = {"comprehensiveness": rest, "sufficiency": top}
            scale = full - empty if full - empty >= 1e-5 else math.nan
            found["normalized_comprehensiveness"] = [np.clip(x / scale, 0, 1) for x in rest]
            # (Suff - Suff_0) / (1 - Suff_0) with Suff = 1 - max(0, change).
            found["normalized_sufficiency"] = [np.clip(1 - max(0, x) / scale, 0, 1) for x in top]
            for measure, each in found.items():
                values.setdefault(f"{measure}_{name}", []).append(sum(each) / len(each))
    return values
