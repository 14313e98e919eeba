"""Words removed from a prepared corpus by the scores of a model, for ROAR (Hooker et al. 2019)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.data.dataset import TAGS, TokenDataset, rewrite_split
from attnlight.data.digests import digests
from attnlight.errors import InputError
from attnlight.functional.attribution.faithfulness import share_counts
from attnlight.functional.ranking import first_items, random_rankings, ranking
from attnlight.records import SCORES, list_column, read_record

RANDOM = "random"
FOLDER = "scores"  # of a run: one record for each split
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class RemovedWords:
    """The words that a method ranks first are removed from each text of every split.

    A signed method ranks by signed score, any other by size; ties go to the word further left.

    Args:
        share: Share of the words of the complete text, above 0 and below 1. Their number is rounded
            up, but one word always remains.
        method: Label of the scores, or `random`: a random order, a function of seed and row.
        scores: Folder of the run whose `scores` has a record of each split, as `ScoreWriter` writes it.
        seed: Seed of `random`.

    Raises:
        InputError: The share is out of range, or a method other than `random` has no `scores`.
    """

    share: float
    method: str
    scores: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(
                f"share of removed_words is {self.share}; it must be above 0 and below 1."
            )
        if self.scores is None and self.method != RANDOM:
            raise InputError(
                f"removed_words ranks by {self.method}: set scores to the folder of the run that "
                "`attnlight predict` scored."
            )

    def identity(self) -> dict[str, Any]:
        """Everything that determines what is removed, as plain JSON."""
        known = {"share": self.share, "method": self.method}
        if self.method == RANDOM:
            return known | {"seed": self.seed}
        folder = Path(str(self.scores), FOLDER)
        files = [folder / f"{split}.parquet" for split in SPLITS]
        return known | {"scores": digests(folder, filter(Path.is_file, files))}

    def read(self, split: str, corpus: str, index: NDArray[np.int64]) -> Sequence[Any]:
        """Scores of the words of each text, by which they are ranked, in the order of `index`.

        Args:
            split: The split of the texts.
            corpus: Fingerprint of the corpus that must have been scored.
            index: Dataset rows of all texts of the split, (n,).

        Raises:
            InputError: The record is missing, of another corpus, or lacks the method or a text.
        """
        if self.method == RANDOM:
            return index
        path = Path(str(self.scores), FOLDER, f"{split}.parquet")
        place = f"removed_words: {path}"
        again = (
            f"run `attnlight predict {self.scores} --data.predict_split {split} "
            "--trainer.callbacks+=attnlight.callbacks.ScoreWriter`."
        )
        if not path.is_file():
            raise InputError(f"{place} is missing: {again}")
        record = read_record(path)
        methods = dict(record.metadata.get("methods", {}))
        if record.metadata.get("corpus") != corpus:
            raise InputError(
                f"{place} has scores of another corpus, or of this one with other options: name a run "
                "that was trained on this corpus, with the same options of `data`."
            )
        if self.method not in methods:
            known = ", ".join(methods)
            raise InputError(f"{place} has no scores of {self.method}, only of {known}.")
        known_rows = record.columns["index"]
        if not np.isin(index, known_rows).all():
            raise InputError(f"{place} lacks texts of the split: {again}")
        scores = record.columns[SCORES + self.method][np.searchsorted(known_rows, index)]
        return scores if methods[self.method]["signed"] else [np.abs(row) for row in scores]

    def order(self, index: Tensor, words: Tensor, scores: Sequence[Any]) -> Tensor:
        """Words (B, N) bool of texts with dataset rows (B,) by rank, (B, N), as of `ranking`.

        Raises:
            InputError: A text has another number of scores than of words.
        """
        if self.method == RANDOM:
            rows = torch.stack([index, torch.zeros_like(index)], dim=1)
            return random_rankings(words, rows, 1, self.seed).squeeze(1)
        if list(map(len, scores)) != words.sum(-1).tolist():
            raise InputError(
                f"removed_words: {self.scores} has scores of other items than the words of the texts."
            )
        flat = torch.from_numpy(np.concatenate(scores).astype(np.float64))
        return ranking(flat.new_zeros(words.shape).masked_scatter(words, flat), words)


def remove_words(
    folder: Path, corpus_name: str, removals: Sequence[RemovedWords], fingerprints: Sequence[str]
) -> None:
    """Remove words from each text of a prepared corpus, and what per-token columns say of them.

    The vocabulary stays that of the complete texts.

    Args:
        folder: The prepared corpus.
        corpus_name: Its name in messages.
        removals: What to remove, each from what the one before left.
        fingerprints: Fingerprint of the corpus that each was scored on.

    Raises:
        InputError: The texts are not words with one label, or scores do not fit them.
    """
    corpus = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for split in corpus["splits"] if removals else ():
        texts = TokenDataset(folder / split)
        of_parts = {TAGS, "sentences"} & {*texts.table.column_names}
        if of_parts or tokenizer["model"]["type"] != "WordLevel":
            raise InputError(
                f"removed_words needs texts of words with one label; those of {corpus_name} are "
                "tagged, split into sentences or made of word pieces."
            )
        scored = zip(removals, fingerprints, strict=True)
        scores = [removal.read(split, scored_on, texts.index) for removal, scored_on in scored]
        rewrite_split(folder / split, partial(_remaining, removals=removals, scores=scores))


def _remaining(
    texts: TokenDataset,
    places: range,
    removals: Sequence[RemovedWords],
    scores: Sequence[Sequence[Any]],
) -> dict[str, Any]:
    """Columns of texts without the removed words; `scores` are those of all texts by removal."""
    batch, names = texts[places], texts.table.column_names
    left = words = batch.attendable()
    counts = words.sum(-1)
    for removal, by_text in zip(removals, scores, strict=True):
        order = removal.order(batch.index, left, by_text[places.start : places.stop])
        removed = share_counts(counts, [removal.share])[:, 0].minimum(counts - 1)
        left = left & ~first_items(order, removed - counts + left.sum(-1))
    kept = batch.mask & (left | ~words)
    lengths = kept.sum(-1).numpy()
    aligned = {"tokens": batch.tokens, **batch.extras}
    columns: dict[str, Any] = {
        name: list_column(values[kept].numpy(), lengths) for name, values in aligned.items()
    }
    if {"words", "text"} & {*names}:
        forms = zip(map(texts.words, places), left.tolist(), strict=True)
        remaining = [list(compress(*row)) for row in forms]
        columns |= {"words": remaining, "text": list(map(" ".join, remaining))}
    columns |= {"length": lengths}
    return {name: values for name, values in columns.items() if name in names}
