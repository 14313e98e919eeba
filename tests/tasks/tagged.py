"""A small corpus of chunks and taggers of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from attnlight.data.raw_text import RawText
from attnlight.datamodules import ChunkingDataModule
from attnlight.tasks import ChunkTagger
from tests import bases
from tests.bases import save, trainer

__all__ = ["arguments", "corpus", "save_tagger", "task_of", "trainer", "written"]

DETERMINERS, NOUNS, VERBS = ("the", "a", "this"), ("cat", "dog", "Tea", "ox7"), ("sat", "Runs")
FILES: dict[str, Any] = {
    "word_column": 0,
    "pos_column": 1,
    "label_column": -1,
    "train": "train.txt",
    "test": "test.txt",
}
SMALL = {"hidden_size": 16, "heads": 2, "filter_size": 8, "embedding_size": 8, "feature_size": 4}
SEES = {"suffixes": [2], "case": True, "characters": 8, "pos": True}
COLUMNS = [f"--data.{name}={value}" for name, value in FILES.items()]


def written(folder: Path, train: int = 80, test: int = 21) -> Path:
    """Sentences of noun and verb phrases whose tags follow from neighbours; one of one token."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for name, size in (("train", train), ("test", test)):
        blocks = [". . O\n"]
        for _ in range(size - 1):
            lines = []
            for _ in range(rng.randint(1, 4)):
                if rng.random() < 0.5:
                    lines.append(f"{rng.choice(DETERMINERS)} DT B-NP")
                    lines += [f"{rng.choice(NOUNS)} NN I-NP"] * rng.randint(1, 2)
                else:
                    lines += [f"{rng.choice(VERBS)} VB B-VP", ". . O"]
            blocks.append("\n".join(lines) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(blocks))
    return folder


def corpus(folder: Path, **options: Any) -> ChunkingDataModule:
    """The corpus of a folder that `written` made, which holds nothing else."""
    sizes = {"batch_size": 8, "eval_batch_size": 5}
    return ChunkingDataModule(str(folder), **(FILES | SEES | sizes | options))


def arguments(data: ChunkingDataModule) -> list[str]:
    """What names the same corpus on the command line."""
    sees = ["--data.case=true", "--data.pos=true", "--data.suffixes=[2]", "--data.characters=8"]
    return ["--data=ChunkingDataModule", f"--data.path={data.path}", *COLUMNS, *sees]


def task_of(data: ChunkingDataModule, **options: Any) -> ChunkTagger:
    """An untrained tagger."""
    torch.manual_seed(0)
    return ChunkTagger(data.spec, **bases.arguments(SMALL | options))


def save_tagger(path: Path, data: ChunkingDataModule, *, seed: int = 0, **options: Any) -> Path:
    """Write the checkpoint of an untrained tagger whose heads differ much."""
    task = task_of(data, **options)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in task.model.named_parameters():
            if "norm" not in name:
                values.copy_(0.7 * torch.randn(values.shape, generator=random))
    task.raw = RawText.of_corpus(data)
    return save(task, path)
