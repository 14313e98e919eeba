"""How well the taggers find the chunks of CoNLL-2000."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.functional.spans import find_chunks
from attnlight.problems.tagging import tag_scheme
from results_page.kept import Experiment
from results_page.tables import DASH, number, summary, table

_FEW = "words, four suffixes, case"
_ALL = f"{_FEW}, characters, POS tags"
# What each experiment's model is, what it reads, and the least F1 that was asked of it.
NAMES: dict[str, tuple[str, str, float | None]] = {
    "conll2000_study": ("`study`: the released encoder", f"{_FEW}, POS tags", 0.90),
    "conll2000_study_no_pos": ("`study`", _FEW, None),
    "conll2000_residual": (
        "`residual`: affine, with the token's own path",
        f"{_FEW}, POS tags",
        None,
    ),
    "conll2000_text": ("`text`: affine, heads alone", f"{_FEW}, POS tags", None),
    "conll2000_bilstm": ("BiLSTM below `residual`", _ALL, 0.925),
}
PUBLISHED = "conll2000_study"
COLUMNS = ("index", "position", "label", "prediction")


def f1_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Chunk F1 on the development sentences and on the official test split."""
    head = [
        "model",
        "reads",
        "seeds",
        "F1, development",
        "F1, test",
        "token accuracy, test",
        "paper",
    ]
    rows = []
    for name, (model, reads, _) in NAMES.items():
        found = experiments[name]
        counts = [chunks(found, seed) for seed in range(len(found.folders))]
        sentences = counts[0].shape[1]
        best = [max(curves["f1"]) for curves in found.validation]
        columns = found.test("predictions")
        right = [float(np.mean(columns["label"] == tags)) for tags in columns["prediction"]]
        tested = summary(lambda rows, c=counts: [micro_f1(one[:, rows]) for one in c], sentences)  # type: ignore[misc]
        theirs = str(published["chunk_f1"]["base"]) if name == PUBLISHED else DASH
        seeds = str(len(found.folders))
        rows.append([model, reads, seeds, number(float(np.mean(best))), tested])
        rows[-1] += [number(float(np.mean(right))), theirs]
    return table(head, rows, words=2)


def test_f1(experiment: Experiment) -> list[float]:
    """Chunk F1 on the test split of each seed."""
    return [micro_f1(chunks(experiment, seed)) for seed in range(len(experiment.folders))]


def chunks(experiment: Experiment, seed: int) -> NDArray[np.int64]:
    """Chunks found right, found, and there to be found, in each test sentence, (3, n)."""
    columns = experiment.test("predictions")
    return sentence_chunks(
        columns["index"], columns["label"], columns["prediction"][seed], experiment.classes
    )


def sentence_chunks(
    index: NDArray[np.int64],
    label: NDArray[np.int64],
    prediction: NDArray[np.int64],
    tags: list[str],
) -> NDArray[np.int64]:
    """Chunks found right, found, and there to be found, by sentence, (3, n).

    Args:
        index: Sentence of each token, ascending, (T,).
        label: Class of each token, (T,).
        prediction: Predicted class of each, (T,).
        tags: Names of the classes.
    """
    begins = torch.from_numpy(np.diff(index, prepend=-1) != 0)
    scheme = tag_scheme(tags)
    there, found = (
        [part.numpy() for part in find_chunks(torch.from_numpy(tokens), begins, scheme)]
        for tokens in (label, prediction)
    )
    right = (there[0] >= 0) & (there[0] == found[0]) & (there[1] == found[1])
    sentence = begins.cumsum(0).numpy() - 1
    marks = (right, found[0] >= 0, there[0] >= 0)
    return np.stack([np.bincount(sentence, weights=mark) for mark in marks]).astype(np.int64)


def micro_f1(counts: NDArray[np.int64]) -> float:
    """2 x right / (found + there), over all sentences of (3, n)."""
    right, found, there = counts.sum(1)
    return float(2 * right / (found + there))
