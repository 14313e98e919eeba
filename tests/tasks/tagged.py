"""A small corpus of chunks and taggers of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attnlight.datamodules import ChunkingDataModule
from tests.bases import save
from tests.tasks.test_tagging import COLUMNS, FILES, SEES, task_of, trainer, written

__all__ = ["arguments", "corpus", "save_tagger", "trainer", "written"]


def corpus(folder: Path, **options: Any) -> ChunkingDataModule:
    """The corpus of a folder that `written` made, which holds nothing else."""
    sizes = {"batch_size": 8, "eval_batch_size": 5}
    return ChunkingDataModule(str(folder), **(FILES | SEES | sizes | options))


def arguments(data: ChunkingDataModule) -> list[str]:
    """What names the same corpus on the command line."""
    sees = ["--data.case=true", "--data.pos=true", "--data.suffixes=[2]", "--data.characters=8"]
    return ["--data=ChunkingDataModule", f"--data.path={data.path}", *COLUMNS, *sees]


def save_tagger(path: Path, data: ChunkingDataModule, *, seed: int = 0, **options: Any) -> Path:
    """Write the checkpoint of an untrained tagger whose heads differ much."""
    task = task_of(data, **options)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in task.model.named_parameters():
            if "norm" not in name:
                values.copy_(0.7 * torch.randn(values.shape, generator=random))
    task.adopt_corpus(data)
    return save(task, path)
