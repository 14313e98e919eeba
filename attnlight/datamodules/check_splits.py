"""The splits of a corpus that was just prepared: what each must hold, and what it counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnlight.batch import BOS, EOS, UNK
from attnlight.data.dataset import TAGS, TokenDataset
from attnlight.errors import InputError


def check_splits(folder: Path, corpus_name: str, *, count_unknown: bool) -> dict[str, Any]:
    """The `splits` of `corpus.json` in a prepared folder, which nothing can be said against.

    Args:
        folder: The prepared corpus.
        corpus_name: What messages call it.
        count_unknown: Add to each split how many of its tokens are not in the vocabulary, boundary
            tokens left out, and write that down.

    Raises:
        InputError: A split is empty, has only one class, or a label that is no class's.
    """
    corpus = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    for split, counts in corpus["splits"].items():
        where, last = f"the {split} split of {corpus_name}", len(corpus["classes"]) - 1
        if not counts["rows"]:
            raise InputError(f"{where} is empty.")
        dataset = TokenDataset(folder / split)
        labels = dataset.labels
        if labels is None and split == "train" and TAGS not in dataset.table.column_names:
            raise InputError(f"{where} has no labels.")
        if labels is not None and (labels.min() < 0 or labels.max() > last):
            wrong = labels[(labels < 0) | (labels > last)][0]
            raise InputError(f"{where} has label {wrong}; labels must be 0 to {last}.")
        if labels is not None and (labels == labels[0]).all():
            raise InputError(
                f"{where} has only one class, {labels[0]}: nothing can be ranked; of a share of the "
                "training texts take a larger one, or another split_seed."
            )
        if count_unknown:
            counts |= {"tokens": 0, "unknown_tokens": 0}
            for chunk in dataset.table["tokens"].chunks:
                ids = chunk.flatten().to_numpy()
                counts["tokens"] += int(((ids != BOS) & (ids != EOS)).sum())
                counts["unknown_tokens"] += int((ids == UNK).sum())
    if count_unknown:
        (folder / "corpus.json").write_text(json.dumps(corpus, indent=2), encoding="utf-8")
    return dict(corpus["splits"])
