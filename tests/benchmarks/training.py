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
from tests.benchmarks.measuring import Measured, clock, interleave, over
from tests.benchmarks.scene import arguments, corpus_of
from tests.commands import CPU, experiment

IMDB_BATCHES = 200
OURS = "attnlight fit, an epoch"
# Plain loops by name, and whether they have fused Adam and our batches.
LOOPS = {
    "plain loop, Adam, shuffled batches": False,
    "plain loop, fused Adam, our batches": True,
}
PLAIN, FUSED = LOOPS


def epochs(count: int = 3, *options: str) -> Measured:
    """An SST epoch of `attnlight fit` / one of each plain loop, taken in turn."""
    seconds = in_turn("sst_bilstm", (PLAIN, FUSED), count, [*CPU, *options])
    return over(seconds, sst_epoch_default=(OURS, PLAIN), sst_epoch_fused=(OURS, FUSED))


def tagging_epoch(count: int = 5, *options: str) -> Measured:
    """An epoch of the study's tagger by `attnlight fit` / one of a plain loop, taken in turn."""
    seconds = in_turn("conll2000_study", (FUSED,), count, [*CPU, *options])
    return over(seconds, tagging_epoch=(OURS, FUSED))


def translation_epoch(count: int = 5, *options: str) -> Measured:
    """An epoch of translating symbols by `attnlight fit` / one of a plain loop, taken in turn."""
    small = ["--data.train_size=4000", "--model.optimizer.plateau_factor=null"]
    seconds = in_turn("symbols_copy", (FUSED,), count, [*CPU, *small, *options])
    return over(seconds, translation_epoch=(OURS, FUSED))


def on_a_gpu(repetitions: int = 3) -> Measured:
    """Batches of IMDb by `attnlight fit` on the GPU / on the CPU, and in bf16 / in single precision."""
    torch.set_default_device("cpu")  # each run chooses its own
    gpu = ["--trainer.accelerator=gpu", "--trainer.devices=1"]
    options = {"CPU": CPU, "GPU": gpu, "GPU, bf16-mixed": [*gpu, "--trainer.precision=bf16-mixed"]}
    limits = ["--trainer.limit_val_batches=1", f"--trainer.limit_train_batches={IMDB_BATCHES}"]

    def epoch(of_device: Sequence[str]) -> float:
        return in_turn("imdb_bilstm", (), 1, [*of_device, *limits])[OURS][0]

    ways = {name: partial(epoch, of_device) for name, of_device in options.items()}
    seconds = interleave(ways, repetitions, warm_ups=0)
    return over(seconds, gpu_epoch=("GPU", "CPU"), gpu_mixed_epoch=("GPU, bf16-mixed", "GPU"))


def in_turn(
    name: str, rivals: Sequence[str], count: int, options: Sequence[str]
) -> dict[str, list[float]]:
    """Seconds of epochs of an `attnlight fit` without validation, and of each loop after each."""
    Epochs.rivals, Epochs.seconds = rivals, {}
    with tempfile.TemporaryDirectory(prefix="attnlight-training-") as folder:
        command = ["fit", *experiment(name), "--root", folder, *options]
        command.append(f"--trainer.callbacks+={Epochs.__module__}.Epochs")
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
        self.seconds[OURS] = self.taken
        corpus = trainer.datamodule  # type: ignore[attr-defined]
        clip = trainer.gradient_clip_val
        self._loops = {
            n: PlainLoop(corpus, pl_module, fused=LOOPS[n], clip=clip) for n in self.rivals
        }

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        super().on_train_epoch_end(trainer)
        for name in list(self._loops)[:: (-1) ** trainer.current_epoch]:
            with torch.enable_grad():
                self.seconds.setdefault(name, []).append(clock(self._loops[name].epoch))


class PlainLoop:
    """What one writes without a framework: the same model, loss, optimiser and schedule.

    Settings are those of a task, weights are drawn anew. `fused`: with fused Adam and batches of
    similar lengths as ours, not default Adam and batches in random order of whatever lengths; `clip`: the
    largest norm of a gradient, if there is one.
    """

    def __init__(
        self,
        corpus: CorpusDataModule,
        task: pl.LightningModule,
        *,
        fused: bool,
        clip: float | None = None,
    ) -> None:
        own, self.clip = task.hparams, clip
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
            if batch.target is not None:
                labels = batch.target[batch.target >= 0]
            else:
                labels = batch.labels if batch.labels.ndim == 1 else batch.labels[batch.mask]
            logits = self.model(batch).logits
            loss = cross_entropy(logits, labels, self.class_weight, reduction=self.loss)
            self.optimizer.zero_grad()
            loss.backward()
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
        if hasattr(self.loader.sampler, "set_epoch"):
            self.loader.sampler.set_epoch(self.loader.sampler.epoch + 1)


def variants(repetitions: int = 3, corpus: CorpusDataModule | None = None) -> Measured:
    """An epoch of adversarial training (SST), and of the guided MLP (IMDb), over a plain one."""
    sst, imdb = corpus or corpus_of("sst"), corpus or corpus_of("imdb")
    names = ("SST, plain", "SST, adversarial", "IMDb, plain", "IMDb, guided")
    build = partial(AdversarialVariant, sst.spec, lambda_=1e-3)
    seconds = against_base(sst, names[:2], build, None, repetitions)
    build = partial(GuidedVariant, imdb.spec, guide="base")
    seconds |= against_base(imdb, names[2:], build, IMDB_BATCHES, repetitions)
    found = over(seconds, adversarial_epoch=names[1::-1], guided_epoch=names[:1:-1])
    return found | Measured({}, {"IMDb, batches": f"the first {IMDB_BATCHES}"})


def against_base(
    data: CorpusDataModule,
    names: Sequence[str],
    variant: Callable[[str], pl.LightningModule],
    batches: int | None,
    repetitions: int,
) -> dict[str, list[float]]:
    """Seconds of second epochs of the BiLSTM and a variant of it; the first makes caches."""
    data.prepare()
    with tempfile.TemporaryDirectory(prefix="attnlight-variants-") as folder:
        base = f"{folder}/base.ckpt"
        plain = partial(AttentionClassifier, data.spec, **arguments("models/bilstm_additive"))

        def fitted(epochs: int, batches: int | None, build: Callable[..., Any]) -> pl.Trainer:
            options = {"max_epochs": epochs, "limit_train_batches": batches}
            fitting = trainer(Path(folder), EpochClock(), limit_val_batches=0, **options)
            fitting.fit(build(), data)
            return fitting

        def second_epoch(build: Callable[[], pl.LightningModule]) -> float:
            (timer,) = (x for x in fitted(2, batches, build).callbacks if isinstance(x, EpochClock))  # type: ignore[attr-defined]
            return timer.taken[-1]

        fitted(1, 1, plain).save_checkpoint(base)
        ways = [partial(second_epoch, build) for build in (plain, partial(variant, base))]
        return interleave(dict(zip(names, ways, strict=True)), repetitions, warm_ups=0)
