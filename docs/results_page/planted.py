"""The planted corpora: accuracy, attention against the evidence, and the minimal flip set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.functional import minimal_flip_set
from results_page.kept import Kept
from results_page.measures import average_precision
from results_page.tables import Row, of_means

NAMES = {
    "planted_bilstm": "planted, BiLSTM",
    "planted_none": "planted, no encoder",
    "planted_negation_bilstm": "planted with negation, BiLSTM",
    "planted_negation_none": "planted with negation, no encoder",
}
MINIMAL = {"planted_4class_none": "planted, 4 classes, no encoder"}
# What the page needs of `attnlight predict`, and of the last experiment.
COLUMNS = ("index", "label", "tokens", "attention", "evidence")
MINIMAL_COLUMNS = ("probabilities", "item_logits", "bias")
GROUPS = ("all", "not negated", "negated")
_NEGATOR, _KEYWORD = re.compile(r"not\d+"), re.compile(r"(good|bad)\d+")
_EVIDENCE = {"for or against the label": np.not_equal, "for the label": np.greater}

Text = Mapping[str, Any]  # as `attnlight predict` wrote it
Floats = NDArray[np.float64]


def groups(texts: Sequence[Text]) -> dict[str, NDArray[np.bool_]]:
    """Which texts belong to each of `GROUPS`, (n,).

    A negated text has a keyword directly after a negator (`PlantedEvidence`).
    """
    pairs = [pairwise(text["tokens"]) for text in texts]
    negated = np.array(
        [any(_NEGATOR.fullmatch(a) and _KEYWORD.fullmatch(b) for a, b in pair) for pair in pairs]
    )
    return dict(zip(GROUPS, (np.ones_like(negated), ~negated, negated), strict=True))


def plausibility(runs: Sequence[Sequence[Text]], kind: str) -> tuple[Floats, Floats, Floats]:
    """How well attention finds one kind of evidence, text by text.

    Args:
        runs: The texts of each run, in one order.
        kind: A key of `_EVIDENCE`.

    Returns:
        Average precision of each run's attention, (S, n), and of a uniform attention, (n,); the
        share of items that are evidence, (n,).
    """
    evidence = [_EVIDENCE[kind](text["evidence"], 0) for text in runs[0]]
    scores = [[np.array(text["attention"][0]) for text in run] for run in runs]
    scores.append([np.ones(len(found)) for found in evidence])
    *attention, uniform = (list(map(average_precision, run, evidence)) for run in scores)
    return np.array(attention), np.array(uniform), np.array([found.mean() for found in evidence])


def accuracy(kept: Kept) -> Iterator[Row]:
    """Accuracy on all texts, on those that are not negated and on those that are."""
    for name, words in NAMES.items():
        columns, masks = kept[name].test("predictions"), groups(kept[name].predicted()[0])
        right = columns["prediction"] == columns["label"]
        counts = " / ".join(f"{masks[group].sum():,}" for group in GROUPS[1:])
        row = {"corpus and model": words, "seeds": len(right)}
        row["texts, not negated / negated"] = counts
        for group, mask in masks.items():
            row[group] = of_means(right[:, mask]) if mask.any() else None
        yield row


def evidence(kept: Kept) -> Iterator[Row]:
    """Average precision of attention beside its base rate and that of uniform attention.

    Raises:
        InputError: Attention and predictions are of different texts.
    """
    for name, words in NAMES.items():
        runs = kept[name].predicted()
        index = kept[name].test("predictions")["index"].tolist()
        if any([text["index"] for text in texts] != index for texts in runs):
            raise InputError(f"{name}: predict and test saw different texts.")
        masks = groups(runs[0])
        for kind in _EVIDENCE:
            attention, uniform, base_rate = plausibility(runs, kind)
            for group in GROUPS if masks["negated"].any() else GROUPS[:1]:
                mask = masks[group]
                yield {
                    "corpus and model": words,
                    "evidence": kind,
                    "texts": group,
                    "n": mask.sum(),
                    "base rate": base_rate[mask].mean(),
                    "AUPRC of uniform attention": uniform[mask].mean(),
                    "AUPRC of the model's attention": of_means(attention[:, mask]),
                }


def inside(text: Text) -> tuple[float, ...]:
    """Whether the minimal flip set of a text is inside what was planted for its label.

    Returns:
        Whether some erasure changes the decision; how many items the minimal set has; whether it
        holds nothing but evidence for the label; whether as many items of largest attention do;
        the probability that as many drawn at random do. All are NaN of a text that was classified
        wrongly, all but the first of one whose decision never flips.
    """
    nothing = float("nan")
    if int(np.argmax(text["probabilities"])) != text["label"]:
        return (nothing,) * 5
    weights, items, bias = (
        torch.tensor(text[name], dtype=torch.float64)
        for name in ("attention", "item_logits", "bias")
    )
    found, members = minimal_flip_set(weights, items, bias, torch.ones_like(weights).bool())
    size = int(found)
    if size < 0:
        return (0.0, *(nothing,) * 4)
    evidence = np.array(text["evidence"]) > 0
    top = weights[0].argsort(descending=True, stable=True)[:size].numpy()
    chance = comb(int(evidence.sum()), size) / comb(len(evidence), size)
    return (1.0, size, evidence[members[0].numpy()].all(), evidence[top].all(), chance)


def minimal(kept: Kept) -> Iterator[Row]:
    """The share of minimal sets inside the evidence beside attention's and chance."""
    for name, words in MINIMAL.items():
        runs = [list(map(inside, texts)) for texts in kept[name].predicted()]
        flips, size, smallest, attention, chance = np.moveaxis(np.array(runs, float), -1, 0)
        right = map("{:,}".format, (~np.isnan(flips)).sum(axis=1))
        yield {
            "corpus and model": words,
            "texts classified right, by seed": " / ".join(right),
            "share that flips": of_means(flips),
            "size of the minimal set": of_means(size),
            "minimal set inside the evidence": of_means(smallest),
            "attention's items inside": of_means(attention),
            "difference": of_means(smallest - attention),
            "random items inside": float(np.nanmean(chance)),
        }
