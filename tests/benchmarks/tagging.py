"""The chunking tagger on CoNLL-2000: an epoch of training, each test on tokens, and all the cheap ones."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from attnlight.batch import TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.datamodules import ChunkingDataModule
from attnlight.tasks import ChunkTagger
from tests.bases import trainer
from tests.benchmarks.cheap import attached
from tests.benchmarks.leaving_out import of_like_length
from tests.benchmarks.measuring import Measurement, clock
from tests.benchmarks.permutation import arguments
from tests.benchmarks.suite import READOUTS
from tests.benchmarks.token_tests import TokenScene, configured, speedup

# Epochs of training before the tests: what they cost depends on how sure the model is.
EPOCHS = 10
SENTENCES = 100


def tagging(
    threads: int,
    corpus: ChunkingDataModule | None = None,
    epochs: int = EPOCHS,
    sentences: int = SENTENCES,
    **options: Any,
) -> dict[str, Measurement]:
    """The tests' speedups over loops, for both readouts.

    Args:
        threads: Threads of torch.
        corpus: What to train and test on, if not CoNLL-2000.
        epochs: Epochs that the models are trained for.
        sentences: Sentences of the batch that each test is timed on, of median length.
        **options: Further arguments of `speedup`.
    """
    data = prepared(threads, corpus)
    batch = of_like_length(data.dataset("test"), sentences)
    found: dict[str, Measurement] = {}
    for readout in READOUTS:
        task, about = fitted(readout, data, epochs)
        for name, measured in speedups(task, batch, readout, **options).items():
            found[name] = Measurement(measured.values, about | measured.details)
    return found


def tagging_cheap(
    threads: int, corpus: ChunkingDataModule | None = None, epochs: int = EPOCHS
) -> dict[str, Measurement]:
    """The time of all the cheap tests, for both readouts; arguments are those of `tagging`."""
    data = prepared(threads, corpus)
    found: dict[str, Measurement] = {}
    for readout in READOUTS:
        task, about = fitted(readout, data, epochs)
        whole = cheap_tests(task, data, readout)
        found[f"tagging_cheap_{readout}"] = Measurement(whole.values, about | whole.details)
    return found


def prepared(threads: int, corpus: ChunkingDataModule | None) -> ChunkingDataModule:
    """The corpus, CoNLL-2000 where none is given, ready to be read by so many threads."""
    torch.set_num_threads(threads)
    data = corpus or ChunkingDataModule(**arguments("data/conll2000"))
    data.prepare()
    return data


def fitted(
    readout: str, data: ChunkingDataModule, epochs: int
) -> tuple[ChunkTagger, dict[str, str]]:
    """A tagger of configs/models trained for some epochs, and how good it is in words."""
    pl.seed_everything(0, verbose=False)
    options = arguments(f"models/tagger_{readout}")
    task = ChunkTagger(data.spec, **options)
    with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
        fitting = trainer(Path(folder), max_epochs=epochs)
        fitting.fit(task, data)
        f1 = float(fitting.callback_metrics["val/f1"])
    return task.eval(), {f"{readout}, epochs of training": f"{epochs}; F1 {f1:.3f} on validation"}


def speedups(
    task: ChunkTagger, batch: TextBatch, readout: str, **options: Any
) -> dict[str, Measurement]:
    """How many times as fast each test is on a batch as a loop over tokens."""
    with torch.no_grad():
        scene = TokenScene.of(task.model, batch)  # type: ignore[arg-type]
    return {
        f"tokens_{name}_{readout}": speedup(scene, test, f"{readout} `{name}`", **options)
        for name, test in configured().items()
    }


def cheap_tests(task: ChunkTagger, data: ChunkingDataModule, readout: str) -> Measurement:
    """Minutes that `Trainer.test` takes with all the tests of configs/tests/cheap.yaml.

    Their records, intervals and figures are in it, and the forward pass.
    """
    tests, seconds = attached("cheap"), {}
    for test in tests:
        seconds[type(test).__name__] = watched(test)
    with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
        plain, whole = (
            clock(lambda: trainer(Path(folder), *some).test(task, data, verbose=False))  # noqa: B023
            for some in ([], tests)
        )
    parts = ", ".join(f"`{name}` {sum(taken):.1f} s" for name, taken in seconds.items())
    rest = whole - plain - sum(map(sum, seconds.values()))
    details = {
        f"{readout}, all cheap tests on {len(data.dataset('test')):,} sentences": f"{whole:.1f} s: "
        f"the same without tests {plain:.1f} s, {parts}, records, intervals and figures {rest:.1f} s"
    }
    return Measurement([whole / 60], details)


def watched(test: InterpretabilityTest) -> list[float]:
    """Seconds of each call of a test's `measure`, from now on."""
    seconds: list[float] = []
    measure = test.measure

    def timed(*batch: Any) -> Mapping[str, torch.Tensor]:
        said: list[Mapping[str, torch.Tensor]] = []
        seconds.append(clock(lambda: said.append(measure(*batch))))
        return said[0]

    test.measure = timed  # type: ignore[method-assign]
    return seconds
