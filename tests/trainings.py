"""Six steps of training with every loss, reduction and optimiser, on any number of devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.datamodules import BabiStories
from attnlight.datamodules.base import CorpusDataModule
from attnlight.tasks import (
    AdversarialVariant,
    AttentionClassifier,
    AttentionTask,
    ChunkTagger,
    GuidedVariant,
)
from tests.bases import SMALL, InSentences, Planted, arguments, save_base
from tests.pairs import pair_task
from tests.tasks.tagged import SMALL as SMALL_TAGGER
from tests.tasks.tagged import corpus, save_tagger, trainer, written

GLOBAL_BATCH, STEPS = 16, 6
TRAIN_SIZE = 61  # no multiple of the batch nor of two devices
Kind = Callable[..., AttentionTask]
Training = tuple[AttentionTask, CorpusDataModule]
Built = Callable[[Path, int], Training]

FAST: dict[str, Any] = {"optimizer": {"learning_rate": 1e-2, "weight_decay": 0.01}}
NO_DROPOUT: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
SGD: dict[str, Any] = {"optimizer": {"name": "sgd", "momentum": 0.9}}
SLOW_SGD: dict[str, Any] = {"optimizer": SGD["optimizer"] | {"learning_rate": 1e-3}}
SUM: dict[str, Any] = {"loss": {"reduction": "sum"}}
OBJECTIVE: dict[str, Any] = {"lambda_deceive": 0.5, "aggregate": "max", "column": "evidence"}
JAIN_WALLACE: dict[str, Any] = {
    "optimizer": {
        "amsgrad": True,
        "weight_decay": {"embedding": 0.01, "encoder": 0.01, "decoder": 0.02},
    },
    "loss": {"class_weights": "balanced"},
}


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """All options, a later one instead of an earlier one of the same group and name."""
    options: dict[str, Any] = {}
    for name, value in (item for part in parts for item in part.items()):
        options[name] = options.get(name, {}) | value if isinstance(value, dict) else value
    return options


def classifier(
    folder: Path, batch_size: int, in_sentences: bool = False, **options: Any
) -> Training:
    data = Planted(in_sentences, batch_size=batch_size)
    settings = SMALL | {"encoder": "bigru", "hierarchical": in_sentences}
    return AttentionClassifier(data.spec, **arguments(merged(settings, FAST, options))), data


def variant(folder: Path, batch_size: int, kind: Kind, **options: Any) -> Training:
    data = Planted(batch_size=batch_size)
    return kind(data.spec, str(folder / "base.ckpt"), **options), data


def tagger(folder: Path, batch_size: int, kind: Kind = ChunkTagger, **options: Any) -> Training:
    data = corpus(folder / "chunks", batch_size=batch_size)
    if kind is not ChunkTagger:
        return kind(data.spec, str(folder / "tagger.ckpt"), **options), data
    return kind(data.spec, **arguments(merged(SMALL_TAGGER | NO_DROPOUT, FAST, options))), data


def pairs(folder: Path, batch_size: int, **options: Any) -> Training:
    sizes = {"train_size": TRAIN_SIZE, "validation_size": 5, "test_size": 5}
    data = BabiStories(**sizes, batch_size=batch_size, cache_dir=str(folder / "cache"))
    return pair_task(data.spec, **merged(FAST, options)), data


class WithEvidence(InSentences):
    """A split of sentences whose tokens of even number are `evidence`."""

    extras = ("evidence",)

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        batch = self.texts[positions]
        batch.extras["evidence"] = (batch.tokens % 2 == 0) & batch.mask
        return batch


def tagger_with_evidence(folder: Path, batch_size: int, **options: Any) -> Training:
    task, data = tagger(folder, batch_size, **options)
    dataset = data.dataset
    data.dataset = lambda split: WithEvidence(dataset(split))  # type: ignore[assignment, method-assign, return-value]
    return task, data


WARMED = {"betas": (0.9, 0.98), "warmup_steps": 4, "learning_rate": 0.1}
ADVERSARY: dict[str, Any] = {"kind": AdversarialVariant, "lambda_": 0.1}
TRAININGS: dict[str, Built] = {
    "adam_sum": partial(classifier, **merged(JAIN_WALLACE, SUM)),
    "adam_mean": partial(classifier, **JAIN_WALLACE),
    "adamw_sum": partial(classifier, optimizer={"name": "adamw"}, **SUM),
    "adamw_mean": partial(classifier, optimizer={"name": "adamw"}),
    "sgd_sum": partial(classifier, **SUM, **SLOW_SGD),
    "sgd_mean": partial(classifier, **SGD),
    "hierarchical": partial(classifier, in_sentences=True, **SUM),
    "objective_mean": partial(classifier, objective=OBJECTIVE, **JAIN_WALLACE),
    "objective_sum": partial(classifier, objective=OBJECTIVE, **SUM),
    "objective_hierarchical": partial(classifier, in_sentences=True, objective=OBJECTIVE),
    "adversary": partial(variant, **ADVERSARY, **FAST),
    "adversary_sum": partial(variant, **ADVERSARY, **FAST, **SUM),
    "adversary_released": partial(variant, **ADVERSARY, released=True, **SLOW_SGD),
    "guided": partial(variant, kind=GuidedVariant, **FAST),
    "tagger_adam_mean": partial(tagger, optimizer=WARMED),
    "tagger_sgd_sum": partial(tagger, **SUM, **SLOW_SGD),
    "tagger_sgd_mean": partial(tagger, **SGD),
    "tagger_objective": partial(tagger_with_evidence, objective=OBJECTIVE, **SGD),
    "tagger_adversary": partial(tagger, **ADVERSARY | {"lambda_": 1.0}, **SGD),
    "tagger_adversary_released": partial(
        tagger, **ADVERSARY | {"lambda_": 20.0}, released=True, **SGD
    ),
    "guided_tagger": partial(tagger, kind=GuidedVariant, **SGD),
    "pairs": pairs,
    "pairs_affine_sum": partial(
        pairs, encoder="cnn", attention="scaled_dot", decoder="affine", **SUM
    ),
}


def prepare(folder: Path) -> None:
    """Write the corpus of chunks and the bases into a folder."""
    written(folder / "chunks", train=TRAIN_SIZE)
    save_base(folder / "base.ckpt", Planted(), **FAST, **SUM)
    save_tagger(folder / "tagger.ckpt", corpus(folder / "chunks"), **FAST, **NO_DROPOUT)


def trained(name: str, folder: Path, devices: int) -> dict[str, Tensor]:
    """Weights and the training loss after six steps on batches of 16 texts over all devices."""
    torch.manual_seed(0)
    task, data = TRAININGS[name](folder, GLOBAL_BATCH // devices)
    strategy = "ddp" if devices > 1 else "auto"
    started = trainer(
        folder, max_steps=STEPS, limit_val_batches=0, devices=devices, strategy=strategy
    )
    started.fit(task, data)
    weights = {key: value.clone() for key, value in task.model.state_dict().items()}
    return weights | {"train/loss": started.callback_metrics["train/loss"]}


def train_on_two(arguments: Sequence[str]) -> int:
    """Do the named trainings as one of two ranks, which writes its weights into a folder."""
    folder, *names = arguments
    ended = {name: trained(name, Path(folder), devices=2) for name in names}
    torch.save(ended, Path(folder, f"rank{os.environ['LOCAL_RANK']}.pt"))
    return 0
