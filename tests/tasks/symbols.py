"""Generated translations of more classes than logits are stored of, and an untrained base."""

from pathlib import Path
from typing import Any

import torch

from attnlight.batch import MANY_CLASSES
from attnlight.data.raw_text import RawText
from attnlight.datamodules import SymbolSequences
from attnlight.tasks import Translator
from tests.bases import arguments, save


class Symbols(SymbolSequences):
    """Copies of at most five symbols."""

    def __init__(self, **options: Any) -> None:
        sizes = {"train_size": 40, "validation_size": 20, "test_size": 20}
        super().__init__(symbols=MANY_CLASSES, max_length=5, batch_size=8, **sizes | options)


def save_translator(path: Path, corpus: Symbols, *, seed: int = 0, **options: Any) -> Path:
    """Write the checkpoint of an untrained base with large differences between embeddings."""
    torch.manual_seed(seed)
    net = {"embedding_size": 8, "hidden_size": 6, "embedding_scale": 2.0, "dropout": 0.0}
    task = Translator(corpus.spec, **arguments(net | {"teacher_forcing": 1.0} | options))
    task.raw = RawText.of_corpus(corpus)
    return save(task, path)
