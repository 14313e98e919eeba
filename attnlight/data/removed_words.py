"""Words removed from a prepared corpus by the scores of a model, for ROAR (Hooker et al. 2019)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnlight.data.dataset import TAGS, TokenDataset, rewrite_split
from attnlight.errors import InputError
from attnlight.functional.attribution.faithfulness import share_counts
from attnlight.functional.ranking import first_items, ranking
from attnlight.records import SCORES, kept_scores, list_column, read_record

RECORD = "saliency_agreement"
# Folder of the record of each split in `records`.
STAGES = {"train": "predict-train", "validation": "val", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class RemovedWords:
    """The words that a method ranks first are removed from each text of every split.

    A signed method ranks by signed score, any other by size; ties go to the word further left.

    Args:
        scores: Folder of a run with records of `SaliencyAgreement` of every split, with scores.
        method: Label of the scores.
        share: Share of the words of the complete text, above 0 and below 1. Their number is rounded
            up, but one word always remains.

    Raises:
        InputError: The share is out of range.
    """

    scores: str
    method: str
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(
                f"share of removed_words is {self.share}; it must be above 0 and below 1."
            )

    def path(self, split: str) -> Path:
        """The record of a split."""
        return Path(self.scores, "records", STAGES[split], f"{RECORD}.parquet")

    def identity(self) -> dict[str, Any]:
        """Everything that determines what is removed, as plain JSON."""
        name, files = SCORES + self.method, filter(Path.is_file, map(self.path, STAGES))
        texts = chain.from_iterable(read_record(f, [name]).columns.get(name, ()) for f in files)
        digest = hashlib.sha256(b"".join(scores.tobytes() for scores in texts)).hexdigest()
        return asdict(self) | {"scores": digest}

    def read(self, split: str, corpus: str, index: NDArray[np.int64]) -> list[NDArray[np.floating]]:
        """Scores by which the words of each text of a split are ranked, by dataset rows (n,)."""
        path, name = self.path(split), SCORES + self.method
        if self.method not in (known := kept_scores(path)):
            raise InputError(f"{path} has no scores of {self.method}, only of {', '.join(known)}.")
        record = read_record(path, ["index", name])
        if record.metadata.get("corpus") != corpus:
            raise InputError(
                f"{path} has scores of another corpus, or of this one with other options: name a run "
                "that was trained and scored on this corpus with these options of `data`."
            )
        signed = record.metadata["methods"][self.method]["signed"]
        scores = dict(zip(*record.columns.values(), strict=True))
        if lacking := len({*index.tolist()} - scores.keys()):
            raise InputError(
                f"{path} lacks {lacking:,} texts of the {split} split: score all of them, without "
                "limits of batches or instances."
            )
        return [scores[row] if signed else np.abs(scores[row]) for row in index.tolist()]


def remove_words(
    folder: Path, corpus_name: str, removals: Sequence[RemovedWords], fingerprints: Sequence[str]
) -> None:
    """Remove words from each text of a prepared corpus, and what per-token columns say of them.

    Each removal takes words from what the one before left, by scores of the corpus of its fingerprint.
    The vocabulary stays that of the complete texts.
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
    scores: Sequence[Sequence[NDArray[np.floating]]],
) -> dict[str, Any]:
    """Columns of some texts without the removed words; `scores` are those of all texts by removal."""
    batch, names = texts[places], texts.table.column_names
    left = words = batch.attendable()
    counts = words.sum(-1)
    for removal, by_text in zip(removals, scores, strict=True):
        chosen = by_text[places.start : places.stop]
        if list(map(len, chosen)) != left.sum(-1).tolist():
            raise InputError(f"{removal.scores} has scores of other items than words.")
        values = torch.zeros(left.shape, dtype=torch.float64)
        values[left] = torch.from_numpy(np.concatenate(chosen).astype(np.float64))
        removed = share_counts(counts, [removal.share])[:, 0].minimum(counts - 1)
        first = first_items(ranking(values, left), removed - counts + left.sum(-1))
        left = left & ~first
    kept = batch.mask & (left | ~words)
    lengths = kept.sum(-1).numpy()
    aligned = {"tokens": batch.tokens, **batch.extras}
    columns = {name: list_column(part[kept].numpy(), lengths) for name, part in aligned.items()}
    columns["length"] = lengths
    if {"words", "text"} & {*names}:
        forms = zip(map(texts.words, places), left.tolist(), strict=True)
        remaining = [list(compress(*row)) for row in forms]
        columns |= {"words": remaining, "text": list(map(" ".join, remaining))}
    return {name: values for name, values in columns.items() if name in names}
