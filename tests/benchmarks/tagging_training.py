"""An epoch of `attnlight fit` of the study's tagger against a plain PyTorch loop over the same model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from attnlight.models.build import build_model
from tests.benchmarks.measuring import Measurement, spread
from tests.benchmarks.training import Epochs, Loop, in_turn

EPOCHS = 5


def tagging_epoch(threads: int, count: int = EPOCHS, *options: str) -> Measurement:
    """Ours / theirs, epochs taken in turn within one `attnlight fit`.

    Args:
        threads: Threads of torch.
        count: Epochs of each that count, after one of each that does not.
        *options: Further options of `fit`.
    """
    torch.set_num_threads(threads)
    taken = in_turn("conll2000_study", TaggingEpochs, count, options)
    details = {
        "attnlight fit, an epoch": spread(taken["ours"]),
        "plain loop, an epoch": spread(taken["plain"]),
    }
    return Measurement.of_ratios(taken["ours"], taken["plain"], details)


class TaggingEpochs(Epochs):
    """The same of a tagger, after each epoch one of a loop over our batches."""

    @override
    def rivals(self, trainer: pl.Trainer, task: pl.LightningModule) -> Mapping[str, Loop]:
        return {"plain": PlainTaggingLoop(trainer, task)}


class PlainTaggingLoop:
    """What one writes without a framework: the same model, batches, loss, Adam and its schedule.

    Args:
        trainer: Whose corpus is read.
        task: Whose model and settings are copied; weights are drawn anew.
    """

    def __init__(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        own = task.hparams
        self.model, settings = (
            build_model(own["problem"], own["net"], own["spec"]),
            own["optimizer"],
        )
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=settings["learning_rate"],
            betas=settings["betas"],
            fused=True,
        )
        warmup, size = settings["warmup_steps"], own["net"]["hidden_size"]
        self.schedule = LambdaLR(
            self.optimizer,
            lambda step: size**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5),
        )
        corpus: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.loader = corpus.train_dataloader()

    def epoch(self) -> None:
        """Train on every batch once."""
        self.model.train()
        for batch in self.loader:
            assert batch.labels is not None
            loss = cross_entropy(self.model(batch).logits, batch.labels[batch.mask])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
        self.loader.sampler.set_epoch(self.loader.sampler.epoch + 1)
