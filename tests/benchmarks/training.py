"""Epochs of training against plain PyTorch loops, and of variants against their base's."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from typing_extensions import override

from attnlight.cli import run
from attnlight.datamodules import CorpusDataModule
from attnlight.models.build import build_model
from attnlight.tasks import AdversarialVariant, AttentionClassifier, GuidedVariant
from attnlight.tasks.options import Optimizer
from tests.bases import trainer
from tests.benchmarks.measuring import Measurement, clock, spread, turned
from tests.benchmarks.scene import arguments, corpus_of
from tests.commands import CPU, experiment

IMDB_BATCHES = 200


def epochs(count: int = 3, *options: str) -> dict[str, Measurement]:
    """An SST epoch of `attnlight fit` / one of each plain loop, taken in turn."""
    seconds = in_turn("sst_bilstm", ("plain", "fused"), count, options)
    times = {
        "attnlight fit": spread(seconds["ours"]),
        "plain loop, Adam, shuffled batches": spread(seconds["plain"]),
        "plain loop, fused Adam, our batches": spread(seconds["fused"]),
    }
    return {
        "sst_epoch_default": Measurement.of_ratios(seconds["ours"], seconds["plain"], times),
        "sst_epoch_fused": Measurement.of_ratios(seconds["ours"], seconds["fused"], times),
    }


def tagging_epoch(count: int = 5, *options: str) -> Measurement:
    """An epoch of the study's tagger by `attnlight fit` / one of a plain loop, taken in turn."""
    seconds = in_turn("conll2000_study", ("fused",), count, options)
    times = {
        "attnlight fit, an epoch": spread(seconds["ours"]),
        "plain loop, an epoch": spread(seconds["fused"]),
    }
    return Measurement.of_ratios(seconds["ours"], seconds["fused"], times)


def in_turn(
    name: str, rivals: Sequence[str], count: int, options: Sequence[str]
) -> dict[str, list[float]]:
    """Seconds of epochs of one `attnlight fit`, "ours", and of an epoch of each loop after each.

    Args:
        name: The experiment.
        rivals: The loops: "plain" or "fused".
        count: Epochs of each that count, after one of each that does not.
        options: Further options of `fit`.
    """
    Epochs.rivals, Epochs.seconds = rivals, {}
    with tempfile.TemporaryDirectory(prefix="attnlight-training-") as folder:
        command = ["fit", *experiment(name), *CPU, "--root", str(Path(folder))]
        command += [f"--trainer.callbacks+={Epochs.__module__}.Epochs", *options]
        run([*command, f"--trainer.max_epochs={1 + count}"])
    return {name: seconds[1:] for name, seconds in Epochs.seconds.items()}


class EpochClock(Callback):
    """Seconds of each training epoch without validation and what is done before the first batch.

    An epoch runs from its start to the start of validation, and from the end of validation to where
    checkpoints are written: batches, steps, logging and progress, all callbacks included.
    """

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._resumed = self._spent = 0.0

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
        self.taken.append(self._spent + time.perf_counter() - self._resumed)


class Epochs(EpochClock):
    """After each epoch of `fit` one of each plain loop; LightningCLI makes it, so it takes nothing."""

    rivals: Sequence[str]
    seconds: dict[str, list[float]]

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds["ours"] = self.taken
        self._loops = {n: PlainLoop(trainer, pl_module, fused=n == "fused") for n in self.rivals}

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        for name in turned(list(self._loops), trainer.current_epoch):
            with torch.enable_grad():
                self.seconds.setdefault(name, []).append(clock(self._loops[name].epoch))


class PlainLoop:
    """What one writes without a framework: the same model, loss, optimiser and schedule.

    Args:
        trainer: Whose corpus is read.
        task: Whose model and settings are copied; weights are drawn anew.
        fused: Fused Adam and batches of similar lengths as ours, not default Adam and batches in
            random order, of whatever lengths fall together.
    """

    def __init__(self, trainer: pl.Trainer, task: pl.LightningModule, *, fused: bool) -> None:
        own = task.hparams
        self.model = build_model(own["problem"], own["net"], own["spec"])
        self.loss = own["loss"]["reduction"]
        self.class_weight: torch.Tensor = task.class_weight.clone()  # type: ignore[operator]
        options = Optimizer(**{**own["optimizer"], "fused": fused})
        built: Any = options.scheduled(self.model, own["net"].get("hidden_size"))
        self.optimizer, self.schedule = built, None
        if isinstance(built, dict):
            self.optimizer, self.schedule = built["optimizer"], built["lr_scheduler"]["scheduler"]
        corpus: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.loader = corpus.train_dataloader()
        if not fused:
            texts = corpus.dataset("train")
            drawn = BatchSampler(RandomSampler(texts), corpus.batch_size, drop_last=False)
            self.loader = DataLoader(texts, sampler=drawn, batch_size=None)

    def epoch(self) -> None:
        """Train on every batch once."""
        self.model.train()
        for batch in self.loader:
            labels = batch.labels if batch.labels.ndim == 1 else batch.labels[batch.mask]
            logits = self.model(batch).logits
            loss = cross_entropy(logits, labels, self.class_weight, reduction=self.loss)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
        if hasattr(self.loader.sampler, "set_epoch"):
            self.loader.sampler.set_epoch(self.loader.sampler.epoch + 1)


def variants(
    repetitions: int = 3, corpus: CorpusDataModule | None = None
) -> dict[str, Measurement]:
    """An epoch of adversarial training (SST), and of the guided MLP (IMDb), over a plain one."""
    sst, imdb = corpus or corpus_of("sst"), corpus or corpus_of("imdb")
    adversary = _against_base(
        sst, lambda base: AdversarialVariant(sst.spec, base, lambda_=1e-3), None, repetitions
    )
    guided = _against_base(
        imdb, lambda base: GuidedVariant(imdb.spec, base, guide="base"), IMDB_BATCHES, repetitions
    )
    return {"adversarial_epoch": adversary, "guided_epoch": guided}


def _against_base(
    data: CorpusDataModule,
    variant: Callable[[str], pl.LightningModule],
    batches: int | None,
    repetitions: int,
) -> Measurement:
    """The second epoch of a variant of the BiLSTM over that of the BiLSTM; the first makes caches."""
    data.prepare()
    with tempfile.TemporaryDirectory(prefix="attnlight-variants-") as folder:
        base, limits = f"{folder}/base.ckpt", {"limit_val_batches": 0}

        def plain() -> pl.LightningModule:
            return AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))

        fitting = trainer(Path(folder), max_epochs=1, limit_train_batches=1, **limits)
        fitting.fit(plain(), data)
        fitting.save_checkpoint(base)
        ways: Mapping[str, Callable[[], pl.LightningModule]]
        ways = {"plain": plain, "variant": lambda: variant(base)}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(repetitions):
            for name in turned(list(ways), number):
                epoch = EpochClock()
                trainer(
                    Path(folder), epoch, max_epochs=2, limit_train_batches=batches, **limits
                ).fit(ways[name](), data)
                seconds[name].append(epoch.taken[-1])
    details = {"batches of an epoch": "all" if batches is None else f"the first {batches}"}
    details |= {name: spread(taken) for name, taken in seconds.items()}
    return Measurement.of_ratios(seconds["variant"], seconds["plain"], details)
