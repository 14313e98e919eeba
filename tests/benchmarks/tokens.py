"""The chunking tagger on CoNLL-2000: each test against loops over tokens, and all the cheap ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    ImportanceCorrelation,
    InterpretabilityTest,
)
from attnlight.datamodules import ChunkingDataModule
from attnlight.models import SelfAttentionTagger
from attnlight.tasks import ChunkTagger
from tests.bases import trainer
from tests.benchmarks.measuring import Measurement, clock, interleave, spread
from tests.benchmarks.scene import arguments, configured_tests, median_length_batch
from tests.benchmarks.training import tagging_epoch
from tests.callbacks.token_loops import Found, Loop, Sentence, loops, paired, searched

# Readouts of the tagger: that of the study, which is not affine in attention, and an affine one.
READOUTS = ("study", "residual")
# Epochs of training before the tests: what they cost depends on how sure the model is.
EPOCHS = 10
# Sentences of the batch that a loop goes through, and tokens of the first that the search does.
SENTENCES, SEARCHED = 2, 2
# How near numbers must come to be the same, and what share of them must.
_CLOSE, _AGREE = 1e-4, 0.97

Token = tuple[Sentence, int]


@dataclass(frozen=True)
class TokenScene:
    """A tagger and sentences of like length.

    Args:
        model: The tagger, in evaluation mode.
        batch: B sentences.
        output: The model's output.
    """

    model: SelfAttentionTagger
    batch: TextBatch
    output: AttentionOutput

    @classmethod
    def of(cls, model: SelfAttentionTagger, batch: TextBatch) -> TokenScene:
        """The scene of a batch, read by the model as in an evaluation."""
        return cls(model, batch, model(batch))

    def alone(self, row: int) -> TokenScene:
        """One of the sentences by itself, without padding."""
        items = int(self.batch.mask[row].sum())
        part = self.batch.apply(
            lambda v: v[row : row + 1] if v.ndim == 1 else v[row : row + 1, :items]
        )
        return TokenScene.of(self.model, part)

    def tokens(self, sentences: int) -> list[Token]:
        """The tokens of the first sentences."""
        parts = [self.alone(row) for row in range(sentences)]
        own = [Sentence(part.model, part.batch) for part in parts]
        return [(sentence, token) for sentence in own for token in range(len(sentence))]

    def measure(self, test: InterpretabilityTest) -> Mapping[str, Tensor]:
        """What a test measures of the batch."""
        with torch.set_grad_enabled(test.needs_gradients):
            return test.measure(self.batch, self.output, self.model)


def tagging(
    corpus: ChunkingDataModule | None = None,
    epochs: int = EPOCHS,
    sentences: int = 100,
    repetitions: int = 3,
    steps: int = 500,
    epoch: Callable[[], Measurement] = tagging_epoch,
) -> dict[str, Measurement]:
    """An epoch of training, and the tests' speedups over loops on sentences of median length.

    Args:
        corpus: What to train and test on, if not CoNLL-2000.
        epochs: Epochs that the models are trained for.
        sentences: Sentences of the batch that each test is timed on.
        repetitions: Runs of each way, in turn.
        steps: Steps of the search.
        epoch: What measures the epoch.
    """
    found = {"tagging_epoch": epoch()}
    for readout, data, task, about in fitted(corpus, epochs):
        with torch.no_grad():
            scene = TokenScene.of(task.model, median_length_batch(data.dataset("test"), sentences))  # type: ignore[arg-type]
        for test in configured():
            name = type(test).__name__
            speed = speedup(scene, test, f"{readout} `{name}`", repetitions, steps)
            found[f"tokens_{name}_{readout}"] = Measurement(speed.values, about | speed.details)
    return found


def cheap_tests(
    corpus: ChunkingDataModule | None = None, epochs: int = EPOCHS
) -> dict[str, Measurement]:
    """Minutes that `Trainer.test` takes with all the tests of configs/tests/cheap.yaml.

    Their records, intervals and figures are in it, and the forward pass.
    """
    found = {}
    for readout, data, task, about in fitted(corpus, epochs):
        tests = configured_tests("cheap")
        seconds = {type(test).__name__: watched(test) for test in tests}
        with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
            plain, whole = (
                clock(lambda: trainer(Path(folder), *some).test(task, data, verbose=False))  # noqa: B023
                for some in ([], tests)
            )
        parts = ", ".join(f"`{name}` {sum(taken):.1f} s" for name, taken in seconds.items())
        rest = whole - plain - sum(map(sum, seconds.values()))
        title = f"{readout}, all cheap tests on {len(data.dataset('test')):,} sentences"
        text = f"{whole:.1f} s: the same without tests {plain:.1f} s, {parts}, records, intervals "
        details = {**about, title: f"{text}and figures {rest:.1f} s"}
        found[f"tagging_cheap_{readout}"] = Measurement([whole / 60], details)
    return found


def fitted(
    corpus: ChunkingDataModule | None, epochs: int
) -> Iterator[tuple[str, ChunkingDataModule, ChunkTagger, dict[str, str]]]:
    """For each readout corpus and trained tagger, and how good it is in words."""
    data = corpus or ChunkingDataModule(**arguments("data/conll2000"))
    data.prepare()
    for readout in READOUTS:
        pl.seed_everything(0, verbose=False)
        task = ChunkTagger(data.spec, **arguments(f"models/tagger_{readout}"))
        with tempfile.TemporaryDirectory(prefix="attnlight-tagging-") as folder:
            fitting = trainer(Path(folder), max_epochs=epochs)
            fitting.fit(task, data)
            f1 = float(fitting.callback_metrics["val/f1"])
        about = {f"{readout}, epochs of training": f"{epochs}; F1 {f1:.3f} on validation"}
        yield readout, data, task.eval(), about


def watched(test: InterpretabilityTest) -> list[float]:
    """Seconds of each call of a test's `measure`, from now on."""
    seconds: list[float] = []
    measure = test.measure

    def timed(*batch: Any) -> Mapping[str, Tensor]:
        columns: list[Mapping[str, Tensor]] = []
        seconds.append(clock(lambda: columns.append(measure(*batch))))
        return columns[0]

    test.measure = timed  # type: ignore[method-assign]
    return seconds


def configured() -> list[InterpretabilityTest]:
    """The tests that stand against loops, the cheap ones as configs/tests/cheap.yaml sets them."""
    cheap = [test for test in configured_tests("cheap") if type(test).__name__ != "Predictions"]
    return [*cheap, ImportanceCorrelation()]


@torch.no_grad()
def speedup(
    scene: TokenScene,
    test: InterpretabilityTest,
    name: str,
    repetitions: int = 3,
    steps: int = 500,
) -> Measurement:
    """How many times as fast a test is, per token, as a loop over the tokens of some sentences.

    Args:
        scene: What the test measures as a whole.
        test: The test.
        name: What the details are of.
        repetitions: Runs of each, in turn.
        steps: Steps of the search.

    Raises:
        RuntimeError: The two disagree.
    """
    tokens, columns = scene.tokens(SENTENCES), scene.measure(test)
    parts = [scene.alone(row) for row in range(SENTENCES)]
    ways: dict[str, Callable[[], Any]]
    if isinstance(test, AdversarialAttention):
        tokens = tokens[:SEARCHED]
        ways = {
            "theirs": lambda: [searched(*t, test.epsilon, steps=steps) for t in tokens],
        }
        agreement = compare_searches(columns, ways["theirs"]())
    else:
        ways = {n: partial(_each, loop, tokens) for n, loop in loops(test).items()}
        agreement = compare_numbers(columns, ways["theirs"]())
    counts = dict.fromkeys(ways, len(tokens))
    ways["a sentence at a time"] = lambda: [part.measure(test) for part in parts]
    ways["ours"] = lambda: scene.measure(test)
    counts["a sentence at a time"] = sum(len(part.output.rows) for part in parts)
    counts["ours"] = len(scene.output.rows)
    seconds = interleave(ways, repetitions, warm_ups=0)
    each = {way: [taken / counts[way] for taken in seconds[way]] for way in seconds}
    text = ", ".join(
        f"{way}{f', {len(tokens)} tokens,' if way == 'theirs' else ''} {spread(each[way])}"
        for way in reversed(each)
    )
    details = {f"{name}, time a token": f"{text}; {agreement}"}
    return Measurement.of_ratios(each["theirs"], each["ours"], details)


def _each(loop: Loop, tokens: Sequence[Token]) -> list[Found]:
    return [loop(*token) for token in tokens]


def compare_numbers(columns: Mapping[str, Tensor], found: Sequence[Found]) -> str:
    """How many of a loop's numbers are the test's, whose first rows they are of.

    Raises:
        RuntimeError: Too few are.
    """
    pairs = paired(columns, found)
    same = sum(abs(a - b) <= _CLOSE or (isnan(a) and isnan(b)) for a, b in pairs)
    if same < _AGREE * len(pairs):
        raise RuntimeError(f"of {len(pairs)} numbers only {same} are the same")
    return f"{same:,} of {len(pairs):,} numbers the same"


def compare_searches(columns: Mapping[str, Tensor], found: Sequence[Sequence[float]]) -> str:
    """What searches find beside what the test says of its first rows.

    Raises:
        RuntimeError: A search ends above the test's upper bound.
    """
    js = torch.tensor(found)
    worst, upper = (columns[f"{name}_by_head"][: len(js)] for name in ("worst_js", "upper_js"))
    if (js > upper + _CLOSE).any():
        raise RuntimeError("a search finds attention further away than the test's upper bound")
    above = int((js > worst + _CLOSE).sum())
    return (
        f"mean JS {worst.mean():.3f} and {js.mean():.3f} nats, {above} of {js.numel()} searches end "
        "above ours"
    )
