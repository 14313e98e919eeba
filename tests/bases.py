"""Small corpora, bases and trainers for tests of variants and of other uses of a base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.raw_text import RawText
from attnlight.datamodules import PlantedEvidence
from attnlight.datamodules.base import CorpusDataModule
from attnlight.storage.checkpoints import AtomicCheckpointIO
from attnlight.tasks import AttentionClassifier
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.guided import GuidedVariant
from attnlight.tasks.options import GROUPS

SIZES: dict[str, Any] = {"train_size": 61, "validation_size": 21, "test_size": 23}
SMALL: dict[str, Any] = {"embedding_size": 8, "hidden_size": 4}
SENTENCE_WORDS = 4  # of a sentence of `InSentences`


class InSentences:
    """A split whose texts are read as sentences of four words."""

    def __init__(self, texts: TokenDataset) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.texts, name)

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        def cut(values: Tensor) -> Tensor:
            return pad(values, (0, -values.shape[1] % SENTENCE_WORDS)).unflatten(
                1, (-1, SENTENCE_WORDS)
            )

        batch = self.texts[positions]
        extras = {name: cut(values) for name, values in batch.extras.items()}
        tokens, mask = cut(batch.tokens), cut(batch.mask)
        return TextBatch(batch.index, tokens, mask, batch.labels, extras=extras)


class Planted(PlantedEvidence):
    """The planted corpus, small, flat or in sentences."""

    def __init__(self, in_sentences: bool = False, **options: Any) -> None:
        settings: dict[str, Any] = SIZES | {"min_tokens": 5, "max_tokens": 17, "batch_size": 8}
        super().__init__(**(settings | {"eval_batch_size": 8} | options))
        self.in_sentences = in_sentences

    def dataset(self, split: str) -> Any:
        texts = super().dataset(split)
        return InSentences(texts) if self.in_sentences else texts


def trainer(folder: Path, *callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "inference_mode": False,
        "num_sanity_val_steps": 0,
        "plugins": [AtomicCheckpointIO()],
    }
    return pl.Trainer(default_root_dir=folder, callbacks=list(callbacks), **(settings | options))


def spec(vocab_size: int, classes: int | Sequence[str], **options: Any) -> dict[str, Any]:
    """The description of a corpus that a model is built from, without the corpus."""
    names = [str(number) for number in range(classes)] if isinstance(classes, int) else classes
    return {
        "vocab_size": vocab_size,
        "classes": list(names),
        "features": {},
        "target": "tokens",
        **options,
    }


def arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a task: the groups that are named, and all other options in `net`."""
    groups = {name: options[name] for name in GROUPS if name in options}
    return {"net": {name: options[name] for name in options if name not in groups}, **groups}


def classifier(corpus_spec: dict[str, Any], **options: Any) -> AttentionClassifier:
    """A classifier by options of its network, and others by group."""
    return AttentionClassifier(corpus_spec, **arguments(options))


def save(task: AttentionTask, path: Path) -> Path:
    """Write a checkpoint of a task as it is."""
    saver = trainer(path.parent)
    saver.strategy.connect(task)
    saver.save_checkpoint(path)
    return path


def save_base(path: Path, corpus: PlantedEvidence, *, seed: int = 0, **options: Any) -> Path:
    """Write the checkpoint of an untrained base with large differences between embeddings."""
    torch.manual_seed(seed)
    settings = SMALL | {"encoder": "bigru", "embedding_scale": 2.0} | options
    task = AttentionClassifier(corpus.spec, **arguments(settings))
    task.raw = RawText.of_corpus(corpus)
    return save(task, path)


def attach_stub_trainer(
    task: pl.LightningModule, corpus: CorpusDataModule, split: str = "train"
) -> Any:
    """Give a task a stub of a trainer in the stage of a split, and return the stub."""
    stage = {"train": "training", "validation": "validating", "test": "testing"}[split]
    stages = ("training", "validating", "testing", "predicting", "sanity_checking")
    stub = SimpleNamespace(datamodule=corpus, **{name: name == stage for name in stages})
    stub.world_size = stub.num_training_batches = 1
    stub.current_epoch = stub.global_rank = 0
    task.trainer, task._seed = stub, 0
    if isinstance(task, GuidedVariant) and task._frozen is not None:
        task.model.guide = task._guide_attention
    task.train(split == "train")
    return stub


def one_text(batch: TextBatch, text: int) -> TextBatch:
    """A batch of one of the texts, without padding."""
    real = batch.mask[text] if batch.mask.ndim == 2 else batch.mask[text].any(-1)
    return batch.select(torch.tensor([text])).trim(int(real.nonzero().max()) + 1)


def batch_of(corpus: CorpusDataModule, split: str = "train", count: int = 8) -> TextBatch:
    """The first texts of a split in shuffled order, so that lengths are mixed."""
    order = np.random.default_rng(0).permutation(count)
    batch: TextBatch = corpus.dataset(split)[order.tolist()]
    return batch
