"""The planted corpora: accuracy, attention against the evidence, and the minimal flip set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import comb
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlight.functional import minimal_flip_set
from attnlight.functional.rationales import average_precision
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
_NEGATED = r"(?:^| )not\d+ (?:good|bad)\d+(?:$| )"  # a keyword after a negator (`PlantedEvidence`)


def groups(tokens: pd.Series) -> dict[str, NDArray[np.bool_]]:
    """Masks of the texts, given as lists of words, in each of `GROUPS`, (n,)."""
    negated = tokens.str.join(" ").str.contains(_NEGATED).to_numpy()
    return dict(zip(GROUPS, (np.ones_like(negated), ~negated, negated), strict=True))


def padded(texts: pd.DataFrame) -> tuple[Tensor, Tensor, Tensor]:
    """Signs of the evidence, mask and attention of texts of one head, (n, N) each."""
    pad = partial(pad_sequence, batch_first=True)
    signs = [torch.tensor(each) for each in texts["evidence"]]
    weights = pad([torch.tensor(x[0], dtype=torch.float64) for x in texts["attention"]])
    return pad(signs), pad([torch.ones_like(x) for x in signs]) > 0, weights


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
        masks, (signs, mask, weights) = (
            groups(texts["tokens"][: len(texts) // seeds]),
            padded(texts),
        )
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


def minimal(archive: Archive) -> Iterator[Row]:
    """The share of minimal flip sets inside the evidence for the label, of texts classified right.

    Beside it the share of as many items of largest attention, and the probability of random ones.
    """
    for name, words in MINIMAL.items():
        texts, seeds = archive[name].predicted(), len(archive[name].seeds)
        signs, mask, weights = padded(texts)
        items = pad_sequence([torch.tensor(x).squeeze(0) for x in texts["item_logits"]], True)
        bias = torch.tensor(np.stack([*texts["bias"]])).double().reshape(len(texts), -1)
        size, members = minimal_flip_set(weights, items.double(), bias, mask)
        order = weights.masked_fill(~mask, -1).argsort(descending=True, stable=True)
        top = order.argsort() < size[:, None]
        smallest, attention = (~(x & (signs <= 0)).any(-1).numpy() for x in (members, top))
        sizes, length = size.numpy().clip(min=0), mask.sum(-1).numpy()
        chance = comb((signs > 0).sum(-1).numpy(), sizes) / comb(length, sizes)
        right = [np.argmax(x) for x in texts["probabilities"]] == texts["label"]
        flips = right & (size >= 0).numpy()
        values = (np.where(flips, x, np.nan) for x in (sizes, smallest, attention, chance))
        values = (x.reshape(seeds, -1) for x in (np.where(right, flips, np.nan), *values))
        flips, sizes, smallest, attention, chance = values
        yield {
            "corpus and model": words,
            "texts classified right, by seed": " / ".join(
                f"{count:,}" for count in right.to_numpy().reshape(seeds, -1).sum(axis=1)
            ),
            "share that flips": mean_over_seeds(flips),
            "size of the minimal set": mean_over_seeds(sizes, (0, np.inf)),
            "minimal set inside the evidence": mean_over_seeds(smallest),
            "attention's items inside": mean_over_seeds(attention),
            "difference": mean_over_seeds(smallest - attention, (-1, 1)),
            "random items inside": float(np.nanmean(chance)),
        }
