"""Epochs of training against plain PyTorch loops, and of variants against their base's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Timer
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from typing_extensions import override

from attnlight.cli.lightning_cli import run
from attnlight.datamodules import CorpusDataModule
from attnlight.models.build import build_model
from attnlight.tasks import AdversarialVariant, AttentionClassifier, GuidedVariant
from attnlight.tasks.options import Optimizer
from tests.bases import trainer
from tests.benchmarks.measuring import Measured, clock, interleave, ratios, spread
from tests.benchmarks.scene import arguments, corpus_of
from tests.commands import CPU, experiment

IMDB_BATCHES = 200


def epochs(count: int = 3, *options: str) -> Measured:
    """An SST epoch of `attnlight fit` / one of each plain loop, taken in turn."""
    seconds = in_turn("sst_bilstm", ("plain", "fused"), count, options)
    details = {
        "attnlight fit": spread(seconds["ours"]),
        "plain loop, Adam, shuffled batches": spread(seconds["plain"]),
        "plain loop, fused Adam, our batches": spread(seconds["fused"]),
    }
    values = {
        "sst_epoch_default": ratios(seconds["ours"], seconds["plain"]),
        "sst_epoch_fused": ratios(seconds["ours"], seconds["fused"]),
    }
    return Measured(values, details)


def tagging_epoch(count: int = 5, *options: str) -> Measured:
    """An epoch of the study's tagger by `attnlight fit` / one of a plain loop, taken in turn."""
    seconds = in_turn("conll2000_study", ("fused",), count, options)
    details = {
        "attnlight fit, an epoch": spread(seconds["ours"]),
        "plain loop, an epoch": spread(seconds["fused"]),
    }
    return Measured({"tagging_epoch": ratios(seconds["ours"], seconds["fused"])}, details)


def on_a_gpu(repetitions: int = 3) -> Measured:
    """Batches of IMDb by `attnlight fit` on the GPU / on the CPU, and in bf16 / in single precision."""
    torch.set_default_device("cpu")  # each run chooses its own
    ways = {
        "CPU": CPU,
        "GPU": [gpu := "--trainer.accelerator=gpu", "--trainer.devices=1"],
        "GPU, bf16-mixed": [gpu, "--trainer.devices=1", "--trainer.precision=bf16-mixed"],
    }
    seconds = interleave(
        {name: partial(fit_epoch, "imdb_bilstm", options) for name, options in ways.items()},
        repetitions,
        warm_ups=0,
    )
    values = {
        "gpu_epoch": ratios(seconds["GPU"], seconds["CPU"]),
        "gpu_mixed_epoch": ratios(seconds["GPU, bf16-mixed"], seconds["GPU"]),
    }
    return Measured(values, {name: spread(taken) for name, taken in seconds.items()})


def fit_epoch(name: str, options: Sequence[str]) -> float:
    """Seconds of 200 batches of the second epoch of `attnlight fit`, validation not included."""
    Epochs.rivals, Epochs.seconds = (), {}
    with tempfile.TemporaryDirectory(prefix="attnlight-training-") as folder:
        command = ["fit", *experiment(name), *options, "--root", folder]
        command += [f"--trainer.callbacks+={Epochs.__module__}.Epochs", "--trainer.max_epochs=2"]
        run(
            [
                *command,
                "--trainer.limit_val_batches=1",
                f"--trainer.limit_train_batches={IMDB_BATCHES}",
            ]
        )
    return Epochs.seconds["ours"][1]


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


class EpochClock(Timer):
    """Seconds of each training epoch, callbacks included, less those of its validation."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float] = []

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start = self.time_elapsed("train")

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        whole = self.time_elapsed("train") - self._start
        self.taken.append(whole - self.time_elapsed("validate"))


class Epochs(EpochClock):
    """After each epoch of `fit` one of each plain loop; LightningCLI makes it, so it takes nothing."""

    rivals: Sequence[str]
    seconds: dict[str, list[float]]

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.seconds["ours"] = self.taken
        corpus = trainer.datamodule  # type: ignore[attr-defined]
        self._loops = {n: PlainLoop(corpus, pl_module, fused=n == "fused") for n in self.rivals}

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        super().on_train_epoch_end(trainer)
        for name in list(self._loops)[:: (-1) ** trainer.current_epoch]:
            with torch.enable_grad():
                self.seconds.setdefault(name, []).append(clock(self._loops[name].epoch))


class PlainLoop:
    """What one writes without a framework: the same model, loss, optimiser and schedule.

    Args:
        corpus: What is read.
        task: Whose model and settings are copied; weights are drawn anew.
        fused: Fused Adam and batches of similar lengths as ours, not default Adam and batches in
            random order, of whatever lengths fall together.
    """

    def __init__(self, corpus: CorpusDataModule, task: pl.LightningModule, *, fused: bool) -> None:
        own = task.hparams
        self.model = build_model(own["problem"], own["net"], own["spec"])
        self.loss = own["loss"]["reduction"]
        self.class_weight: torch.Tensor = task.class_weight.clone()  # type: ignore[operator]
        options = Optimizer(**{**own["optimizer"], "fused": fused})
        built: Any = options.scheduled(self.model, own["net"].get("hidden_size"))
        self.optimizer, self.schedule = built, None
        if isinstance(built, dict):
            self.optimizer, self.schedule = built["optimizer"], built["lr_scheduler"]["scheduler"]
        self.loader: Any = corpus.train_dataloader()
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


def variants(repetitions: int = 3, corpus: CorpusDataModule | None = None) -> Measured:
    """An epoch of adversarial training (SST), and of the guided MLP (IMDb), over a plain one."""
    sst, imdb = corpus or corpus_of("sst"), corpus or corpus_of("imdb")
    adversary = against_base(
        sst, lambda base: AdversarialVariant(sst.spec, base, lambda_=1e-3), None, repetitions
    )
    guided = against_base(
        imdb, lambda base: GuidedVariant(imdb.spec, base, guide="base"), IMDB_BATCHES, repetitions
    )
    details = {
        "SST, batches": "all",
        "SST, plain": spread(adversary["plain"]),
        "SST, adversarial": spread(adversary["variant"]),
        "IMDb, batches": f"the first {IMDB_BATCHES}",
        "IMDb, plain": spread(guided["plain"]),
        "IMDb, guided": spread(guided["variant"]),
    }
    values = {
        "adversarial_epoch": ratios(adversary["variant"], adversary["plain"]),
        "guided_epoch": ratios(guided["variant"], guided["plain"]),
    }
    return Measured(values, details)


def against_base(
    data: CorpusDataModule,
    variant: Callable[[str], pl.LightningModule],
    batches: int | None,
    repetitions: int,
) -> dict[str, list[float]]:
    """Seconds of second epochs of the BiLSTM and a variant of it; the first makes caches."""
    data.prepare()
    with tempfile.TemporaryDirectory(prefix="attnlight-variants-") as folder:
        base, limits = f"{folder}/base.ckpt", {"limit_val_batches": 0}

        def plain() -> pl.LightningModule:
            return AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))

        def second_epoch(build: Callable[[], pl.LightningModule]) -> float:
            timer = EpochClock()
            options = {"max_epochs": 2, "limit_train_batches": batches, **limits}
            trainer(Path(folder), timer, **options).fit(build(), data)
            return timer.taken[-1]

        fitting = trainer(Path(folder), max_epochs=1, limit_train_batches=1, **limits)
        fitting.fit(plain(), data)
        fitting.save_checkpoint(base)
        ways = {
            "plain": partial(second_epoch, plain),
            "variant": partial(second_epoch, lambda: variant(base)),
        }
        return interleave(ways, repetitions, warm_ups=0)
