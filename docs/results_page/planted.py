"""The planted corpora: accuracy, attention against the evidence, and the minimal flip set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from attnlight.functional import minimal_flip_set
from attnlight.functional.average_precision import average_precision
from results_page import NAMES
from results_page.archive import Archive
from results_page.tables import Row, mean_over_seeds

MODELS: dict[str, str] = NAMES["planted"]["models"]
MINIMAL: dict[str, str] = NAMES["planted"]["minimal"]
# Columns of the predictions that the page needs.
_COLUMNS = ("index", "label", "tokens", "attention", "evidence")
PREDICTED: dict[str, tuple[str, ...]] = dict.fromkeys(MODELS, _COLUMNS)
PREDICTED |= dict.fromkeys(MINIMAL, (*_COLUMNS, "probabilities", "item_logits", "bias"))
GROUPS = ("all", "not negated", "negated")
EVIDENCE = {"for or against the label": torch.ne, "for the label": torch.gt}
_padded = partial(pad_sequence, batch_first=True)  # lists as one tensor, (n, N)
_NEGATED = r"(?:^| )not\d+ (?:good|bad)\d+(?:$| )"  # a keyword after a negator (`PlantedEvidence`)


def groups(tokens: pd.Series) -> dict[str, NDArray[np.bool_]]:
    """Masks of the texts, given as lists of words, in each of `GROUPS`, (n,)."""
    negated = tokens.str.join(" ").str.contains(_NEGATED).to_numpy()
    return dict(zip(GROUPS, (np.ones_like(negated), ~negated, negated), strict=True))


def accuracy(archive: Archive) -> Iterator[Row]:
    """Accuracy on all texts, on texts without negation and on texts with it."""
    for name, words in MODELS.items():
        columns = archive[name].test("predictions")
        right = columns["prediction"] == columns["label"]
        masks = groups(archive[name].predicted()["tokens"][: right.shape[1]])
        row = {"corpus and model": words, "seeds": len(right)}
        counts = (f"{masks[group].sum():,}" for group in GROUPS[1:])
        row["texts, not negated / negated"] = " / ".join(counts)
        means = (mean_over_seeds(right[:, x]) if x.any() else None for x in masks.values())
        yield row | dict(zip(masks, means, strict=True))


def evidence(archive: Archive) -> Iterator[Row]:
    """Average precision of attention with its base rate and that of uniform attention."""
    for name, words in MODELS.items():
        texts, seeds = archive[name].predicted(), len(archive[name].seeds)
        masks = groups(texts["tokens"][: len(texts) // seeds])
        found = [torch.tensor(signs) for signs in texts["evidence"]]
        signs, mask = _padded(found), _padded([torch.ones_like(x) for x in found]) > 0
        weights = _padded([torch.tensor(x[0], dtype=torch.float64) for x in texts["attention"]])
        for kind, compare in EVIDENCE.items():
            relevant = compare(signs, 0) & mask
            precision = average_precision(weights, relevant, mask).numpy().reshape(seeds, -1)
            rates = (relevant.sum(-1) / mask.sum(-1).double()).numpy().reshape(seeds, -1)[0]
            # Equal weights tie, so they get the base rate if there is evidence.
            uniform = np.where(rates > 0, rates, np.nan)
            for group in GROUPS if masks["negated"].any() else GROUPS[:1]:
                chosen = masks[group]
                yield {
                    "corpus and model": words,
                    "evidence": kind,
                    "texts": group,
                    "n": chosen.sum(),
                    "base rate": rates[chosen].mean(),
                    "AUPRC of uniform attention": uniform[chosen].mean(),
                    "AUPRC of the model's attention": mean_over_seeds(precision[:, chosen]),
                }


def minimal_set_in_evidence(text: Mapping[str, Any]) -> tuple[float, ...]:
    """Whether the minimal flip set of a text contains only evidence planted for its label.

    Returns:
        Whether some erasure changes the decision; the size of the minimal set; whether all its
        items are evidence for the label; whether the same number of items of largest attention are;
        the probability that the same number of random items are. All are NaN for a misclassified
        text, all except the first for a text whose decision never flips.
    """
    undefined = float("nan")
    if int(np.argmax(text["probabilities"])) != text["label"]:
        return (undefined,) * 5
    names = ("attention", "item_logits", "bias")
    weights, items, bias = (torch.tensor(text[x], dtype=torch.float64) for x in names)
    count, members = minimal_flip_set(weights, items, bias, torch.ones_like(weights).bool())
    if (size := int(count)) < 0:
        return (0.0, *(undefined,) * 4)
    evidence = np.array(text["evidence"]) > 0
    top = weights[0].argsort(descending=True, stable=True)[:size].numpy()
    chance = comb(int(evidence.sum()), size) / comb(len(evidence), size)
    return (1.0, size, evidence[members[0].numpy()].all(), evidence[top].all(), chance)


def minimal(archive: Archive) -> Iterator[Row]:
    """The share of minimal sets inside the evidence, with that of attention and of chance."""
    for name, words in MINIMAL.items():
        texts = archive[name].predicted()
        results = [minimal_set_in_evidence(text) for _, text in texts.iterrows()]
        runs = np.reshape(results, (len(archive[name].seeds), -1, 5))
        flips, size, smallest, attention, chance = np.moveaxis(runs, -1, 0)
        right = map("{:,}".format, (~np.isnan(flips)).sum(axis=1))
        yield {
            "corpus and model": words,
            "texts classified right, by seed": " / ".join(right),
            "share that flips": mean_over_seeds(flips),
            "size of the minimal set": mean_over_seeds(size, (0, np.inf)),
            "minimal set inside the evidence": mean_over_seeds(smallest),
            "attention's items inside": mean_over_seeds(attention),
            "difference": mean_over_seeds(smallest - attention, (-1, 1)),
            "random items inside": float(np.nanmean(chance)),
        }
