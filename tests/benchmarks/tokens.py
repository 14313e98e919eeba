"""The chunking tagger on CoNLL-2000: each test against loops over tokens, and all the cheap ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import AdversarialAttention, ImportanceCorrelation, InterpretabilityTest
from attnlight.datamodules import ChunkingDataModule
from attnlight.models import SelfAttentionTagger
from attnlight.tasks import ChunkTagger
from tests.bases import trainer
from tests.benchmarks.measuring import Measured, clock, interleave, ratios, spread
from tests.benchmarks.scene import arguments, configured_tests, median_length_batch
from tests.benchmarks.training import tagging_epoch
from tests.callbacks.token_loops import Found, loop_of, measured, paired, searched, tokens_of

# Readouts of the tagger: that of the study, which is not affine in attention, and an affine one.
READOUTS = ("study", "residual")
# Epochs of training before the tests: what they cost depends on how sure the model is.
EPOCHS = 10
# Sentences of the batch that a loop goes through, and tokens of the first that the search does.
SENTENCES, SEARCHED = 2, 2
# How near numbers must come to be the same, and what share of them must.
_CLOSE, _AGREE = 1e-4, 0.97


def tagging(
    corpus: ChunkingDataModule | None = None,
    epochs: int = EPOCHS,
    sentences: int = 100,
    repetitions: int = 3,
    steps: int = 500,
    epoch: Callable[[], Measured] = tagging_epoch,
    **net: int,
) -> Measured:
    """An epoch of training, and the tests' speedups over loops on sentences of median length."""
    every = epoch()
    for readout, data, task, _ in fitted(corpus, epochs, net):
        batch = median_length_batch(data.dataset("test"), sentences)
        # What stands against loops: the cheap tests as they are configured, but `Predictions`.
        for test in (*configured_tests("cheap")[1:], ImportanceCorrelation()):
            name = type(test).__name__
            found, text = speedup(task.model, batch, test, repetitions, steps)
            title = f"{readout} `{name}`, time a token"
            every |= Measured({f"tokens_{name}_{readout}": found}, {title: text})
    return every


def cheap_tests(
    corpus: ChunkingDataModule | None = None, epochs: int = EPOCHS, **net: int
) -> Measured:
    """Minutes of `Trainer.test` with all tests of configs/tests/cheap.yaml."""
    values, details = {}, {}
    for readout, data, task, f1 in fitted(corpus, epochs, net):
        with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
            tester = trainer(Path(folder), *configured_tests("cheap"))
            seconds = clock(partial(tester.test, task, data, verbose=False))
        values[f"tagging_cheap_{readout}"] = [seconds / 60]
        details[f"{readout}, epochs of training"] = f"{epochs}; F1 {f1:.3f} on validation"
    return Measured(values, details)


def fitted(
    corpus: ChunkingDataModule | None, epochs: int, net: Mapping[str, int]
) -> Iterator[tuple[str, ChunkingDataModule, ChunkTagger, float]]:
    """For each readout corpus and trained tagger, and its F1 on validation."""
    data = corpus or ChunkingDataModule(**arguments("data/conll2000"))
    data.prepare()
    for readout in READOUTS:
        pl.seed_everything(0, verbose=False)
        given = arguments(f"models/tagger_{readout}")
        task = ChunkTagger(data.spec, **given | {"net": given["net"] | net})
        with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
            fitting = trainer(Path(folder), max_epochs=epochs)
            fitting.fit(task, data)
        yield readout, data, task.eval(), float(fitting.callback_metrics["val/f1"])


@torch.no_grad()
def speedup(
    model: SelfAttentionTagger,
    batch: TextBatch,
    test: InterpretabilityTest,
    repetitions: int,
    steps: int,
) -> tuple[list[float], str]:
    """How many times as fast a test is, per token, as a loop over the tokens of some sentences."""
    output, tokens = model(batch), tokens_of(model, batch, SENTENCES)
    ours = partial(measured, test, batch, output, model)
    if isinstance(test, AdversarialAttention):
        tokens = tokens[:SEARCHED]
        loop: Callable[..., Any] = partial(searched, epsilon=test.epsilon, steps=steps)
    else:
        loop = loop_of(test)

    def theirs() -> list[Any]:
        return [loop(*token) for token in tokens]

    compare = compare_searches if isinstance(test, AdversarialAttention) else compare_numbers
    agreement = compare(ours(), theirs())
    ways = {"theirs": partial(clock, theirs), "ours": partial(clock, ours)}
    seconds = interleave(ways, repetitions, warm_ups=0)
    alone = [taken / len(tokens) for taken in seconds["theirs"]]
    together = [taken / len(output.rows) for taken in seconds["ours"]]
    text = f"ours {spread(together)}, theirs, {len(tokens)} tokens, {spread(alone)}; {agreement}"
    return ratios(alone, together), text


def compare_numbers(columns: Mapping[str, Tensor], found: Sequence[Found]) -> str:
    """How many of a loop's numbers are the test's, whose first rows they are of."""
    pairs = paired(columns, found)
    same = sum(abs(a - b) <= _CLOSE or (isnan(a) and isnan(b)) for a, b in pairs)
    if same < _AGREE * len(pairs):
        raise RuntimeError(f"of {len(pairs)} numbers only {same} are the same")
    return f"{same:,} of {len(pairs):,} numbers the same"


def compare_searches(columns: Mapping[str, Tensor], found: Sequence[Sequence[float]]) -> str:
    """What searches find beside what the test says of its first rows."""
    js = torch.tensor(found)
    worst, upper = (columns[f"{name}_by_head"][: len(js)] for name in ("worst_js", "upper_js"))
    if (js > upper + _CLOSE).any():
        raise RuntimeError("a search finds attention further away than the test's upper bound")
    above = int((js > worst + _CLOSE).sum())
    return (
        f"mean JS {worst.mean():.3f} and {js.mean():.3f} nats, {above} of {js.numel()} searches end "
        "above ours"
    )
