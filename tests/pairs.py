"""A corpus of pairs, and bases of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import one_hot

from attnlight.batch import TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.raw_text import RawText
from attnlight.tasks import AttentionTask
from tests.bases import Planted, arguments, save

SMALL: dict[str, Any] = {
    "encoder": "bigru",
    "embedding_size": 8,
    "hidden_size": 4,
    "embedding_scale": 2.0,
}


class WithQueries:
    """A split whose texts have queries of one to four tokens and, if `choices`, one answer or two."""

    def __init__(self, texts: TokenDataset, choices: bool) -> None:
        self.texts, self.choices = texts, choices

    def __len__(self) -> int:
        return len(self.texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.texts, name)

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        batch = self.texts[positions]
        real = torch.arange(4) <= batch.index[:, None] % 4
        batch.query = torch.where(real, batch.tokens[:, :4].flip(1), 0)
        batch.query_mask = real
        if self.choices:
            assert batch.labels is not None
            classes = len(self.texts.label_counts(3))
            other = (batch.labels + 1 + batch.index % (classes - 1)) % classes
            answers = torch.stack([batch.labels, other], dim=1)
            batch.allowed_classes = torch.zeros(len(batch), classes, dtype=torch.bool)
            batch.allowed_classes.scatter_(1, answers, True)
            alone = batch.index % 5 == 0
            batch.allowed_classes[alone] = one_hot(batch.labels, classes).bool()[alone]
        return batch


class PlantedPairs(Planted):
    """The planted corpus of three classes, whose texts have queries."""

    paired = True

    def __init__(self, choices: bool = True, **options: Any) -> None:
        super().__init__(num_classes=3, **options)
        self.choices = choices

    def dataset(self, split: str) -> Any:
        return WithQueries(super().dataset(split), self.choices)


def pair_task(spec: dict[str, Any], seed: int = 0, **options: Any) -> AttentionTask:
    """An untrained classifier of pairs, by options of its network, and others by group."""
    torch.manual_seed(seed)
    return AttentionTask(spec, "pairs", **arguments(SMALL | options))


def save_pairs(path: Path, corpus: PlantedPairs, **options: Any) -> Path:
    """Write the checkpoint of an untrained base."""
    task = pair_task(corpus.spec, **options)
    task.raw = RawText.of_corpus(corpus)
    return save(task, path)
