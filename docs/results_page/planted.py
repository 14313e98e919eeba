"""The planted corpora: accuracy, attention against the evidence, and the minimal flip set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

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
# Columns that the page needs of what `attnlight predict` wrote.
_COLUMNS = ("index", "label", "tokens", "attention", "evidence")
PREDICTED = dict.fromkeys(NAMES, _COLUMNS)
PREDICTED |= dict.fromkeys(MINIMAL, (*_COLUMNS, "probabilities", "item_logits", "bias"))
GROUPS = ("all", "not negated", "negated")
EVIDENCE = {"for or against the label": np.not_equal, "for the label": np.greater}
_NEGATED = r"(?:^| )not\d+ (?:good|bad)\d+(?:$| )"  # a keyword after a negator (`PlantedEvidence`)


def groups(tokens: pd.Series) -> dict[str, NDArray[np.bool_]]:
    """Which of some texts, lists of words, belong to each of `GROUPS`, (n,)."""
    negated = tokens.str.join(" ").str.contains(_NEGATED).to_numpy()
    return dict(zip(GROUPS, (np.ones_like(negated), ~negated, negated), strict=True))


def accuracy(kept: Kept) -> Iterator[Row]:
    """Accuracy on all texts, on those that are not negated and on those that are."""
    for name, words in NAMES.items():
        columns = kept[name].test("predictions")
        right = columns["prediction"] == columns["label"]
        masks = groups(kept[name].predicted()["tokens"][: right.shape[1]])
        row = {"corpus and model": words, "seeds": len(right)}
        counts = (f"{masks[group].sum():,}" for group in GROUPS[1:])
        row["texts, not negated / negated"] = " / ".join(counts)
        yield row | {x: of_means(right[:, own]) if own.any() else None for x, own in masks.items()}


def evidence(kept: Kept) -> Iterator[Row]:
    """Average precision of attention beside its base rate and that of uniform attention."""
    for name, words in NAMES.items():
        texts, seeds = kept[name].predicted(), len(kept[name].seeds)
        masks = groups(texts["tokens"][: len(texts) // seeds])
        scores = [np.array(heads[0]) for heads in texts["attention"]]
        for kind, compare in EVIDENCE.items():
            relevant = [compare(signs, 0) for signs in texts["evidence"]]
            found = np.reshape([*map(average_precision, scores, relevant)], (seeds, -1))
            rates = np.reshape([*map(np.mean, relevant)], (seeds, -1))[0]
            for group in GROUPS if masks["negated"].any() else GROUPS[:1]:
                mask = masks[group]
                yield {
                    "corpus and model": words,
                    "evidence": kind,
                    "texts": group,
                    "n": mask.sum(),
                    "base rate": rates[mask].mean(),
                    # Equal weights share a rank, and so get the base rate where there is evidence.
                    "AUPRC of uniform attention": np.where(rates > 0, rates, np.nan)[mask].mean(),
                    "AUPRC of the model's attention": of_means(found[:, mask]),
                }


def inside(text: Mapping[str, Any]) -> tuple[float, ...]:
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
        found = [inside(text) for _, text in kept[name].predicted().iterrows()]
        runs = np.reshape(found, (len(kept[name].seeds), -1, 5))
        flips, size, smallest, attention, chance = np.moveaxis(runs, -1, 0)
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
