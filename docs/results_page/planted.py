"""The planted corpora: accuracy where texts are negated, and attention against the evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from results_page.kept import Experiment
from results_page.measures import average_precision
from results_page.tables import DASH, of_means, table

NAMES = {
    "planted_bilstm": "planted, BiLSTM",
    "planted_none": "planted, no encoder",
    "planted_negation_bilstm": "planted with negation, BiLSTM",
    "planted_negation_none": "planted with negation, no encoder",
}
GROUPS = ("all", "not negated", "negated")
_NEGATOR, _KEYWORD = re.compile(r"not\d+"), re.compile(r"(good|bad)\d+")
_EVIDENCE = {"for or against the label": np.not_equal, "for the label": np.greater}


class Plausibility(NamedTuple):
    """How well a ranking finds the evidence, text by text.

    Attributes:
        attention: Average precision of each run's attention, (S, n).
        uniform: That of a uniform attention, (n,).
        base_rate: Share of items that are evidence, (n,).
    """

    attention: NDArray[np.float64]
    uniform: NDArray[np.float64]
    base_rate: NDArray[np.float64]


def is_negated(tokens: Sequence[str]) -> bool:
    """Whether a keyword stands directly after a negator (`PlantedEvidence`)."""
    pairs = pairwise(tokens)
    return any(_NEGATOR.fullmatch(first) and _KEYWORD.fullmatch(second) for first, second in pairs)


def plausibility(runs: Sequence[Sequence[Mapping[str, Any]]], kind: str) -> Plausibility:
    """Attention against one kind of evidence.

    Args:
        runs: The texts of each run, in one order, as `attnlight predict` wrote them.
        kind: A key of `_EVIDENCE`.
    """
    evidence = [_EVIDENCE[kind](text["evidence"], 0) for text in runs[0]]
    attention = [
        [average_precision(*pair) for pair in zip(map(_attention, texts), evidence, strict=True)]
        for texts in runs
    ]
    uniform = [average_precision(np.ones(len(found)), found) for found in evidence]
    shares = [found.mean() for found in evidence]
    return Plausibility(np.array(attention), np.array(uniform), np.array(shares))


def _attention(text: Mapping[str, Any]) -> NDArray[np.float64]:
    (head,) = text["attention"]
    return np.array(head)


def accuracy_table(experiments: Mapping[str, Experiment]) -> str:
    """Accuracy on all texts, on those that are not negated and on those that are."""
    rows = []
    for name, experiment in experiments.items():
        columns = experiment.test("predictions")
        right = (columns["prediction"] == columns["label"]).astype(np.float64)
        masks = _groups(experiment.predicted()[0])
        found = [of_means(right[:, masks[g]]) if masks[g].any() else DASH for g in GROUPS]
        counts = " / ".join(f"{masks[group].sum():,}" for group in GROUPS[1:])
        rows.append([NAMES[name], str(len(experiment.seeds)), counts, *found])
    head = ["corpus and model", "seeds", "texts, not negated / negated", *GROUPS]
    return table(head, rows)


def evidence_table(experiments: Mapping[str, Experiment]) -> str:
    """Average precision of attention beside its base rate and that of uniform attention."""
    rows = []
    for name, experiment in experiments.items():
        runs = experiment.predicted()
        _require_same(experiment, runs)
        masks = _groups(runs[0])
        wanted = GROUPS if masks["negated"].any() else GROUPS[:1]
        for kind in _EVIDENCE:
            found = plausibility(runs, kind)
            for group in wanted:
                mask = masks[group]
                means = [f"{part[mask].mean():.3f}" for part in (found.base_rate, found.uniform)]
                ours = of_means(found.attention[:, mask])
                rows.append([NAMES[name], kind, group, f"{mask.sum():,}", *means, ours])
    head = ["corpus and model", "evidence", "texts", "n", "base rate", "AUPRC of uniform attention"]
    return table([*head, "AUPRC of the model's attention"], rows, words=3)


def _groups(texts: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.bool_]]:
    negated = np.array([is_negated(text["tokens"]) for text in texts])
    return dict(zip(GROUPS, (np.ones_like(negated), ~negated, negated), strict=True))


def _require_same(experiment: Experiment, runs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Attention and predictions must be of the same texts."""
    index = experiment.test("predictions")["index"].tolist()
    for texts in runs:
        if [text["index"] for text in texts] != index:
            raise InputError(f"{experiment.name}: predict and test saw different texts.")
