"""How well the taggers find the chunks of CoNLL-2000."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.functional.spans import find_chunks
from attnlight.problems.tagging import tag_scheme
from attnlight.report.tables import markdown_table as table
from attnlight.statistics.bootstrap import resampled_ratios
from results_page.kept import Experiment
from results_page.measures import Resampled
from results_page.tables import DASH, number, over_seeds

Integers, Values = NDArray[np.int64], NDArray[np.float64]
_FEW = "words, four suffixes, case"
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
    "conll2000_bilstm": ("BiLSTM below `residual`", f"{_FEW}, characters, POS tags", 0.925),
}
PUBLISHED = "conll2000_study"
COLUMNS = ("index", "position", "label", "prediction")


def f1_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Chunk F1 on the development sentences and on the official test split."""
    rows = []
    for name, (model, reads, _) in NAMES.items():
        runs = experiments[name]
        best = [max(curves["f1"]) for curves in runs.validation]
        columns = runs.test("predictions")
        right = (columns["prediction"] == columns["label"]).mean()
        theirs = str(published["chunk_f1"]["base"]) if name == PUBLISHED else DASH
        figures = [number(np.mean(best)), over_seeds(test_f1(runs)), number(right)]
        rows.append([model, reads, str(len(best)), *figures, theirs])
    head = ["model", "reads", "seeds", "F1, development", "F1, test", "token accuracy, test"]
    return table([*head, "paper"], rows, 2)


def test_f1(experiment: Experiment) -> Resampled:
    """Chunk F1 on the test split, 2 x right / (found + there), of each seed and resampled."""
    columns, classes = experiment.test("predictions"), experiment.classes
    right, both = zip(
        *(
            chunks(columns["index"], columns["label"], run, classes)
            for run in columns["prediction"]
        ),
        strict=True,
    )
    return resampled_ratios(2 * np.stack(right, axis=1), np.stack(both, axis=1))


def chunks(
    index: Integers, label: Integers, prediction: Integers, tags: list[str]
) -> tuple[Values, Values]:
    """Chunks found right, and those found and those there together, by sentence, (n,).

    Args:
        index: Sentence of each token, ascending, (T,).
        label: Class of each token, (T,).
        prediction: Predicted class of each, (T,).
        tags: Names of the classes.
    """
    begins, scheme = torch.from_numpy(np.diff(index, prepend=-1) != 0), tag_scheme(tags)
    there, found = (
        [part.numpy() for part in find_chunks(torch.from_numpy(tokens), begins, scheme)]
        for tokens in (label, prediction)
    )
    right = (there[0] >= 0) & (there[0] == found[0]) & (there[1] == found[1])
    sentence = begins.cumsum(0).numpy() - 1
    either = np.add(there[0] >= 0, found[0] >= 0, dtype=float)
    return np.bincount(sentence, right), np.bincount(sentence, either)
