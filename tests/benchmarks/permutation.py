"""What `AttentionPermutation` adds to `test` on IMDb."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml

from attnlight.callbacks import AttentionPermutation
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks.measuring import Measurement, interleave, measured, spread
from tests.commands import CONFIGS

REPETITIONS = 3


def imdb() -> TextDataModule:
    """The corpus of configs/data/imdb.yaml with all its test texts, not a fifth of them."""
    return corpus_of("imdb", subset=None)


def corpus_of(name: str, **changes: object) -> TextDataModule:
    """The corpus of a file in configs/data, some of its options changed."""
    return TextDataModule(**arguments(f"data/{name}") | changes)


def addition(
    threads: int, repetitions: int = REPETITIONS, corpus: CorpusDataModule | None = None
) -> Measurement:
    """Per cent that the callback adds to the time of `Trainer.test`, record and figure included.

    The BiLSTM is as it was drawn: neither its cost nor that of the shuffles depends on training.

    Args:
        threads: Threads of torch.
        repetitions: Tests with and tests without, in turn.
        corpus: What to test on, if not IMDb.
    """
    torch.set_num_threads(threads)
    data = corpus or imdb()
    data.prepare()
    pl.seed_everything(0, verbose=False)
    model = arguments("models/bilstm_additive")
    task = AttentionClassifier(data.spec, **model)
    with tempfile.TemporaryDirectory(prefix="attnlight-permutation-") as folder:
        ways = {
            "without": lambda: _test(task, data, Path(folder), with_permutation=False),
            "with": lambda: _test(task, data, Path(folder), with_permutation=True),
        }
        processor: dict[str, list[float]] = {}
        seconds = interleave(ways, repetitions, processor=processor)
    details = {
        "texts": f"{len(data.dataset('test')):,}",
        "test without": spread(seconds["without"]),
        "test with": spread(seconds["with"]),
        "processor time without": spread(processor["without"]),
        "processor time with": spread(processor["with"]),
        "processor time added": measured(_added(processor), "%"),
    }
    return Measurement(_added(seconds).values, details)


def _added(seconds: Mapping[str, Sequence[float]]) -> Measurement:
    """Per cent that the callback adds, for each pair."""
    pairs = zip(seconds["with"], seconds["without"], strict=True)
    return Measurement([100 * (mine / other - 1) for mine, other in pairs])


def arguments(name: str) -> dict[str, Any]:
    """The arguments in a file of configs."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["init_args"]
    return found


def _test(
    task: AttentionClassifier, data: CorpusDataModule, folder: Path, *, with_permutation: bool
) -> None:
    callbacks = [AttentionPermutation()] if with_permutation else []
    trainer(folder, *callbacks).test(task, data, verbose=False)
