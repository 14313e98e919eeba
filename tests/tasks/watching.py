"""A callback that holds a guided model's attention against what is kept of its guide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.reference import FrozenBase, read_base, running_split


class Watch(pl.Callback):
    """Compare the attention of every text of every loop with its guide's, read alone.

    Args:
        guide: The guide's checkpoint.
        out: Folder for the indices seen on each rank, by loop.
    """

    def __init__(self, guide: str, out: str) -> None:
        self.guide, self.out = FrozenBase(guide), Path(out)
        self.frozen = read_base(guide).model
        self.seen: dict[str, list[int]] = {}

    def watch(self, trainer: pl.Trainer, task: Any, batch: TextBatch) -> None:
        split = running_split(trainer)
        with torch.no_grad():
            given = task.model(batch).weights
        self.compare(trainer, split, batch, given)

    def compare(self, trainer: pl.Trainer, split: str, batch: TextBatch, given: Tensor) -> None:
        for text, index in enumerate(batch.index.tolist()):
            if index < 0:
                continue
            self.seen.setdefault(split, []).append(index)
            chosen = torch.arange(len(batch)) == text
            alone = batch.select(chosen)
            alone.tokens, alone.mask = (
                values[:, : int(alone.mask.sum())] for values in (alone.tokens, alone.mask)
            )
            store = self.guide.outputs(trainer.datamodule, split)  # type: ignore[attr-defined]
            row, _ = store.read(torch.tensor([[index, 0]]), alone.attendable())
            assert torch.equal(given[text, :, : row.shape[2]], row[0]), index
            assert not given[text, :, row.shape[2] :].any()
            own = self.frozen(alone).weights
            torch.testing.assert_close(row, own, atol=2e-6, rtol=0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.watch(trainer, task, batch)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.watch(trainer, task, batch)

    def on_test_batch_end(
        self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.watch(trainer, task, batch)

    def on_predict_batch_end(
        self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.watch(trainer, task, batch)

    def teardown(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        path = self.out / f"{stage}-{trainer.global_rank}.json"
        path.write_text(json.dumps(self.seen))


class WatchTokens(Watch):
    """The same of every token of every sentence, whose rows a tagger puts one after the other."""

    def compare(self, trainer: pl.Trainer, split: str, batch: TextBatch, given: Tensor) -> None:
        store = self.guide.outputs(trainer.datamodule, split)  # type: ignore[attr-defined]
        for text, rows in enumerate(given.split(batch.mask.sum(-1).tolist())):
            index = int(batch.index[text])
            if index < 0:
                continue
            self.seen.setdefault(split, []).append(index)
            length = len(rows)
            alone = batch.select(torch.arange(len(batch)) == text)
            alone = alone.apply(lambda v, n=length: v if v.ndim == 1 else v[:, :n])  # type: ignore[misc]
            own = self.frozen(alone).weights
            for position in range(length):
                key = torch.tensor([[index, position]])
                row, _ = store.read(key, torch.ones(1, length, dtype=torch.bool))
                assert torch.equal(rows[position, :, :length], row[0]), (index, position)
                torch.testing.assert_close(row[0], own[position], atol=2e-6, rtol=0)
            assert not rows[:, :, length:].any()
