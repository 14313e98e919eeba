"""What the tests of the verdict card read of a text, and the tolerance of its integrated gradients."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightning.pytorch as pl
import pyarrow.parquet
import torch
import transformers
from torch import Tensor, nn

import attnlight
from attnlight.api.recording import build_tests, record_tests
from attnlight.attribution import IntegratedGradients
from attnlight.batch import TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.functional.correlation import rank_agreement
from attnlight.huggingface import HuggingFacePooledClassifier
from attnlight.models.recurrence import Recurrence
from attnlight.reference.rows import GivenTexts
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks.measuring import Measured, timed
from tests.benchmarks.scene import arguments, random_texts

Scene = tuple[nn.Module, TextBatch]
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT |= {"intermediate_size": 48, "vocab_size": 2000}
EXACT = {"tolerance": 1e-4, "max_steps": 4096}  # what other settings are compared with
CHOSEN = (4, 0.1, 32)  # nodes at first, tolerance and most nodes in configs/tests/card.yaml
SETTINGS = (
    *product((4, 8, 16), (0.2, 0.1, 0.05, 0.01, 0.001), (256,)),
    *product((4,), (0.1,), (16, 32, 64, 128)),
)


def sst(texts: int = 64) -> Scene:
    """The model that comes with attnlight, and test sentences of SST."""
    path = Path(os.environ["ATTNLIGHT_DATA"], "sst5/data/test-00000-of-00001.parquet")
    found = pyarrow.parquet.read_table(path)["text"].to_pylist()
    model = attnlight.load("sst")
    return model.model, model.encode(found[:: len(found) // texts][:texts])  # type: ignore[return-value]


def planted(
    texts: int = 24, tokens: int = 200, epochs: int = 6, size: int = 3000, redundancy: int = 4
) -> Scene:
    """A BiLSTM trained on planted texts of equal length, and test texts."""
    data = PlantedEvidence(
        size, 8, texts, min_tokens=tokens, max_tokens=tokens, redundancy=redundancy, distractors=1
    )
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_small"))
    with tempfile.TemporaryDirectory(prefix="attnlight-card-") as folder:
        trainer(Path(folder), max_epochs=epochs, limit_val_batches=0).fit(task, data)
    test = data.dataset("test")
    return task.eval().model, test[torch.arange(len(test)).numpy()]


def bert(texts: int = 64, tokens: int = 20, **size: int) -> Scene:
    """A small BERT, or one of another size, with random weights below an attention layer, and random texts."""
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**BERT | size))
    batch = random_texts(0, texts, tokens, model.config.vocab_size)
    return HuggingFacePooledClassifier(model, 2).eval(), batch


SCENES = {
    "card_sst": ("the shipped SST model", sst),
    "card_planted": ("a BiLSTM on planted texts of 200 words", planted),
    "card_bert": ("a small BERT, texts of 20 tokens", bert),
}


class Reading(Counter[str]):
    """Tokens that a model's encoder has read by test; a backward pass counts as two passes."""

    test = "the model's output"

    def _read(self, tokens: Tensor | float) -> None:
        self[self.test] += float(tokens)

    def _forward(self, _: nn.Module, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        tokens = given[0].mask.sum()
        self._read(tokens)
        embeddings = options.get("embeddings")
        if embeddings is not None and embeddings.requires_grad:
            embeddings.register_hook(lambda _: self._read(2 * tokens))

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[None]:
        """Count what a model reads."""
        started, resumed = Recurrence.__init__, Recurrence.resume

        def start(recurrence: Recurrence, *args: Any) -> None:
            self._read(args[2].sum() / 2)
            started(recurrence, *args)

        def resume(recurrence: Recurrence, *args: Any) -> Iterator[tuple[Tensor, ...]]:
            for states in resumed(recurrence, *args):
                self._read(len(states[0]) / 2)
                yield states

        handle = model.register_forward_pre_hook(self._forward, with_kwargs=True)
        with patch.multiple(Recurrence, __init__=start, resume=resume):
            yield
        handle.remove()


def passes(model: nn.Module, batch: TextBatch) -> tuple[dict[str, float], float]:
    """Forward passes a text by test of the card, and processor time of all over one of a batch."""
    read, tests = Reading(), build_tests("card")
    for test in tests:

        def record(*args: Any, of: Any = test.record, name: str = test.name) -> None:
            read.test = name
            of(*args)

        test.record = record  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(prefix="attnlight-card-") as folder, read.of(model):
        texts = GivenTexts([batch], None, [])
        whole = timed(
            partial(record_tests, tests, model, [batch], texts, model, Path(folder))  # type: ignore[arg-type]
        )
    once = timed(torch.no_grad()(partial(model, batch)), calls=5)
    tokens = float(batch.mask.sum())
    return {name: number / tokens for name, number in read.items()}, whole / once


def card(scenes: Mapping[str, tuple[str, Any]] = SCENES) -> Measured:
    """Forward passes a text of the card's tests on three models."""
    values, details = {}, {}
    for name, (words, scene) in scenes.items():
        by_test, time = passes(*scene())
        values[name] = [sum(by_test.values())]
        each = ", ".join(f"{test} {number:.1f}" for test, number in by_test.items() if number)
        details[words] = f"{each}; processor time of all {time:.0f} forward passes"
    return Measured(values, details)


def tolerances(
    scenes: Mapping[str, tuple[str, Any]] = SCENES,
    settings: Sequence[tuple[int, float, int]] = SETTINGS,
) -> Measured:
    """Agreement of integrated gradients with those of a tolerance of 1e-4, by nodes and tolerance."""
    values: dict[str, list[float]] = {"card_tolerance": []}
    details = {}
    for words, scene in scenes.values():
        model, batch = scene()
        with torch.no_grad():
            output = model(batch)
        texts = model, batch, output, output.logits.argmax(-1)
        exact, about = IntegratedGradients(**EXACT).explain(*texts)  # type: ignore[arg-type]
        error, nodes = float(about["completeness_error"].max()), float(about["steps"].mean())
        lines = [f"reference: {nodes:.1f} nodes, completeness error at most {error:.2g}"]
        for setting in settings:
            steps, tolerance, most = setting
            method = IntegratedGradients(steps=steps, tolerance=tolerance, max_steps=most)
            scores, columns = method.explain(*texts)
            signed, by_size = (
                {name: float(column.nanmean()) for name, column in found.items()}
                for found in (
                    rank_agreement(one, other, output.mask, ["tau", "overlap"])
                    for one, other in ((scores, exact), (scores.abs(), exact.abs()))
                )
            )
            lines.append(
                f"{steps} nodes, {tolerance:g}, at most {most}: {signed['tau']:.3f}, "
                f"{by_size['tau']:.3f}, {signed['overlap']:.3f}, {float(columns['steps'].mean()):.1f}"
            )
            if setting == CHOSEN:
                values["card_tolerance"].append(signed["tau"])
        columns_in_words = "tau signed, tau by size, overlap of the first tenth, nodes in the end"
        details[f"{words} ({columns_in_words})"] = "; ".join(lines)
    return Measured(values, details)
