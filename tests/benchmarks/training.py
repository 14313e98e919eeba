"""An SST training epoch of `attnlight fit` against plain PyTorch loops over the same model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.cli import run
from attnlight.data.dataset import TokenDataset
from attnlight.data.samplers import BucketSampler
from attnlight.models.build import build_model
from tests.benchmarks.measuring import Measurement, clock, spread, turned
from tests.commands import CPU, experiment

WARM_UPS = 1
EPOCHS = 3


def epochs(threads: int, count: int = EPOCHS, *options: str) -> dict[str, Measurement]:
    """Ours / theirs for each plain loop, epochs taken in turn within one `attnlight fit`.

    Args:
        threads: Threads of torch.
        count: Epochs of each that count, after one of each that does not.
        *options: Further options of `fit`.
    """
    torch.set_num_threads(threads)
    counted = in_turn("sst_bilstm", Epochs, count, options)
    times = {
        "attnlight fit": spread(counted["ours"]),
        "plain loop, Adam, shuffled batches": spread(counted["plain"]),
        "plain loop, fused Adam, our batches": spread(counted["fused"]),
    }
    return {
        "sst_epoch_default": Measurement.of_ratios(counted["ours"], counted["plain"], times),
        "sst_epoch_fused": Measurement.of_ratios(counted["ours"], counted["fused"], times),
    }


def in_turn(
    name: str, callback: type[Epochs], count: int, options: Sequence[str]
) -> dict[str, list[float]]:
    """Seconds of epochs of `attnlight fit`, "ours", and of the loops of a callback, in turn.

    Args:
        name: The experiment.
        callback: What takes the times.
        count: Epochs of each that count, after one of each that does not.
        options: Further options of `fit`.
    """
    taken = callback.seconds = {"ours": []}
    with tempfile.TemporaryDirectory(prefix="attnlight-training-") as folder:
        command = ["fit", *experiment(name), *CPU, "--root", str(Path(folder))]
        command += [f"--trainer.callbacks+={callback.__module__}.{callback.__name__}"]
        command += [f"--trainer.max_epochs={WARM_UPS + count}", *options]
        run(command)
    return {name: seconds[WARM_UPS:] for name, seconds in taken.items()}


class Loop(Protocol):
    """What an epoch of ours is held against."""

    def epoch(self) -> None:
        """Train on every batch once."""
        ...


class Epochs(Callback):
    """Time the epochs of `fit` without validation, and after each one epoch of the plain loops.

    An epoch of ours runs from its start to the start of validation, and from the end of validation
    to where checkpoints are written: batches, steps, logging and progress, all callbacks included.
    """

    seconds: dict[str, list[float]]

    def __init__(self) -> None:
        self._rivals: Mapping[str, Loop] = {}
        self._resumed = self._spent = 0.0

    def rivals(self, trainer: pl.Trainer, task: pl.LightningModule) -> Mapping[str, Loop]:
        """The plain loops, by name."""
        return {
            "plain": PlainLoop(trainer, task, fused=False),
            "fused": PlainLoop(trainer, task, fused=True),
        }

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._rivals = self.rivals(trainer, pl_module)

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._spent, self._resumed = 0.0, time.perf_counter()

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._spent += time.perf_counter() - self._resumed

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed = time.perf_counter()

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._spent += time.perf_counter() - self._resumed
        self.seconds["ours"].append(self._spent)
        for name in turned(list(self._rivals), trainer.current_epoch):
            with torch.enable_grad():
                self.seconds.setdefault(name, []).append(clock(self._rivals[name].epoch))


class PlainLoop:
    """What one writes without a framework: the same model, loss and settings of the optimiser.

    Args:
        trainer: Whose corpus is read.
        task: Whose model and settings are copied; weights are drawn anew.
        fused: Fused Adam and batches of similar lengths as ours, not default Adam and shuffled ones.
    """

    def __init__(self, trainer: pl.Trainer, task: pl.LightningModule, *, fused: bool) -> None:
        own = task.hparams
        self.model = build_model(own["problem"], own["net"], own["spec"])
        self.class_weight: torch.Tensor = task.class_weight.clone()  # type: ignore[operator]
        decay = own["optimizer"]["weight_decay"]
        groups = [
            {"params": list(part.parameters()), "weight_decay": decay.get(name, 0.0)}
            for name, part in self.model.named_children()
            if list(part.parameters())
        ]
        settings: dict[str, Any] = {"lr": own["optimizer"]["learning_rate"], "amsgrad": True}
        if fused:
            settings["fused"] = True
        self.optimizer = torch.optim.Adam(groups, **settings)
        corpus: Any = trainer.datamodule  # type: ignore[attr-defined]
        if fused:
            self.loader = corpus.train_dataloader()
        else:
            self.loader = shuffled(corpus.dataset("train"), corpus.batch_size)

    def epoch(self) -> None:
        """Train on every batch once."""
        self.model.train()
        for batch in self.loader:
            logits = self.model(batch).logits
            loss = cross_entropy(logits, batch.labels, self.class_weight, reduction="sum")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if isinstance(self.loader.sampler, BucketSampler):
            self.loader.sampler.set_epoch(self.loader.sampler.epoch + 1)


def shuffled(dataset: TokenDataset, batch_size: int) -> DataLoader[TextBatch]:
    """Batches in random order, of whatever lengths fall together."""
    sampler = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None)
