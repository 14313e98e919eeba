"""A training epoch of a variant against one of the model that it is a variant of."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from attnlight.datamodules import CorpusDataModule
from attnlight.tasks import AdversarialVariant, AttentionClassifier, GuidedVariant
from tests.bases import trainer
from tests.benchmarks.measuring import Measurement, spread, turned
from tests.benchmarks.permutation import arguments, corpus_of

REPETITIONS = 3
IMDB_BATCHES = 200
Make = Callable[[], pl.LightningModule]


def adversary(
    threads: int, repetitions: int = REPETITIONS, corpus: CorpusDataModule | None = None
) -> Measurement:
    """An epoch of adversarial training over one of plain training of the same model, on SST."""
    return _epochs(threads, repetitions, corpus or corpus_of("sst"), _adversary, None)


def guided(
    threads: int, repetitions: int = REPETITIONS, corpus: CorpusDataModule | None = None
) -> Measurement:
    """An epoch of the MLP that is told its attention over one of the BiLSTM, on IMDb."""
    return _epochs(threads, repetitions, corpus or corpus_of("imdb"), _guided, IMDB_BATCHES)


def _adversary(data: CorpusDataModule, base: str) -> pl.LightningModule:
    return AdversarialVariant(data.spec, base, lambda_=1e-3)


def _guided(data: CorpusDataModule, base: str) -> pl.LightningModule:
    return GuidedVariant(data.spec, base, guide="base")


def _epochs(
    threads: int,
    repetitions: int,
    data: CorpusDataModule,
    variant: Callable[[CorpusDataModule, str], pl.LightningModule],
    batches: int | None,
) -> Measurement:
    torch.set_num_threads(threads)
    data.prepare()
    with tempfile.TemporaryDirectory(prefix="attnlight-variants-") as folder:
        base = f"{folder}/base.ckpt"
        ways: dict[str, Make] = {
            "plain": lambda: AttentionClassifier(data.spec, **arguments("models/bilstm_additive")),
            "variant": lambda: variant(data, base),
        }
        _fit(ways["plain"](), data, Path(folder), 1, 1).save_checkpoint(base)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(repetitions):
            for name in turned(list(ways), number):
                clock = EpochClock()
                _fit(ways[name](), data, Path(folder), 2, batches, clock)
                seconds[name].append(clock.seconds[-1])
    details = {
        "batches of an epoch": "all" if batches is None else f"the first {batches}",
        "plain": spread(seconds["plain"]),
        "variant": spread(seconds["variant"]),
    }
    return Measurement.of_ratios(seconds["variant"], seconds["plain"], details)


class EpochClock(Callback):
    """Seconds of each training epoch; what is done before the first batch is not in it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._began = time.perf_counter()

    @override
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def _fit(
    task: pl.LightningModule,
    data: CorpusDataModule,
    folder: Path,
    epochs: int,
    batches: int | None,
    *callbacks: Callback,
) -> pl.Trainer:
    fitting = trainer(
        folder,
        *callbacks,
        max_epochs=epochs,
        limit_train_batches=batches,
        limit_val_batches=0,
    )
    fitting.fit(task, data)
    return fitting
