"""The minimal flip set against planted evidence: is it inside what was planted for the label?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.functional import minimal_flip_set
from results_page.kept import Experiment
from results_page.tables import of_means, table

NAMES = {"planted_4class_none": "planted, 4 classes, no encoder"}
COLUMNS = ("probabilities", "item_logits", "bias")  # of `attnlight predict`, beside the usual ones


class Inside(NamedTuple):
    """Of each text of one run: NaN where it was classified wrongly or its decision never flips.

    Attributes:
        flips: Whether some erasure changes the decision, (n,), NaN only where classified wrongly.
        size: Items of the minimal set, (n,).
        minimal: Whether that set holds nothing but evidence for the label, (n,).
        attention: The same of as many items of largest attention, (n,).
        chance: Probability that as many items drawn at random hold nothing else, (n,).
    """

    flips: NDArray[np.float64]
    size: NDArray[np.float64]
    minimal: NDArray[np.float64]
    attention: NDArray[np.float64]
    chance: NDArray[np.float64]


def inside(texts: Sequence[Mapping[str, Any]]) -> Inside:
    """Judge the texts of one run, as `attnlight predict` wrote them."""
    return Inside(*np.array([_judge(text) for text in texts], dtype=np.float64).T)


def _judge(text: Mapping[str, Any]) -> tuple[float, ...]:
    nothing = float("nan")
    (weights,), (items,) = text["attention"], text["item_logits"]
    if int(np.argmax(text["probabilities"])) != text["label"]:
        return (nothing,) * 5
    mask = torch.ones(1, len(weights), dtype=torch.bool)
    held = torch.tensor(weights, dtype=torch.float64)
    found, members = minimal_flip_set(
        held[None],
        torch.tensor(items, dtype=torch.float64)[None],
        torch.tensor(text["bias"], dtype=torch.float64),
        mask,
    )
    size = int(found)
    if size < 0:
        return (0.0, *(nothing,) * 4)
    evidence = np.array(text["evidence"]) > 0
    top = held.argsort(descending=True, stable=True)[:size].numpy()
    chance = comb(int(evidence.sum()), size) / comb(len(evidence), size)
    minimal = evidence[members[0].numpy()].all()
    return (1.0, float(size), float(minimal), float(evidence[top].all()), chance)


def minimal_table(experiments: Mapping[str, Experiment]) -> str:
    """The share of minimal sets inside the evidence beside attention's and chance."""
    rows = []
    for name, experiment in experiments.items():
        runs = [inside(texts) for texts in experiment.predicted()]
        flips, size, minimal, attention, chance = (
            np.stack(part) for part in zip(*runs, strict=True)
        )
        right = [int((~np.isnan(run)).sum()) for run in flips]
        rows.append(
            [
                NAMES[name],
                " / ".join(f"{count:,}" for count in right),
                *(pooled(part) for part in (flips, size, minimal, attention)),
                pooled(minimal - attention),
                f"{np.nanmean(chance):.3f}",
            ]
        )
    head = ["corpus and model", "texts classified right, by seed", "share that flips"]
    head += ["size of the minimal set", "minimal set inside the evidence"]
    head += ["attention's items inside", "difference", "random items inside"]
    return table(head, rows)


def pooled(values: NDArray[np.float64]) -> str:
    """`of_means` over the texts that are defined in every run."""
    return of_means(values[:, ~np.isnan(values).any(axis=0)])
