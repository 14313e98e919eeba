"""Models, texts and corpora on which benchmarks measure the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
import yaml
from lightning.pytorch.cli import instantiate_class
from torch.nn.functional import pad

from attnlight.batch import SPECIAL_TOKENS, AttentionOutput, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.data.dataset import TokenDataset
from attnlight.data.samplers import OnceSampler
from attnlight.datamodules import TextDataModule
from attnlight.models import FlatClassifier
from tests.benchmarks.measuring import Measured, clock, interleave, over, ratios
from tests.commands import CONFIGS

TEXTS, TOKENS, WORDS = 32, 200, 10_000
# Factors of the last layers, with which an untrained model is about as peaked as a trained one.
_PEAKED, _SPREAD = 200, 300


@dataclass(frozen=True)
class Scene:
    """Jain & Wallace's BiLSTM, batches of random words of equal length, and its output of each."""

    model: FlatClassifier
    batches: list[TextBatch]
    outputs: list[AttentionOutput]

    @classmethod
    @torch.no_grad()
    def drawn(cls, batches: int, texts: int = TEXTS, tokens: int = TOKENS) -> Scene:
        """The model and texts that the tests without re-encoding share."""
        torch.manual_seed(0)
        every = [random_texts(number, texts, tokens, WORDS) for number in range(batches)]
        model = spread_out(FlatClassifier(WORDS, num_classes=2).eval(), every)
        return cls(model, every, [model(batch) for batch in every])

    @property
    def size(self) -> str:
        """The texts in words."""
        texts, tokens = self.batches[0].tokens.shape
        return f"{len(self.batches)} batches of {texts} texts of {tokens} tokens"

    def forward(self) -> list[AttentionOutput]:
        """The model's output of each batch, computed anew."""
        return [self.model(batch) for batch in self.batches]

    def speedup(
        self,
        name: str,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        repetitions: int,
        calls: int,
        warm_ups: int = 1,
    ) -> Measured:
        """How many times as fast ours is as theirs, and the time of the item logits."""
        model, outputs = self.model, self.outputs
        ways = {"theirs": partial(clock, theirs), "ours": partial(clock, ours, calls)}
        logits = "item logits, which come with the forward pass"
        ways[logits] = partial(clock, lambda: [recompute_item_logits(model, o) for o in outputs])
        seconds = interleave(ways, repetitions, warm_ups)
        counted = [a + b for a, b in zip(seconds["ours"], seconds[logits], strict=True)]
        with_items = median(ratios(seconds["theirs"], counted))
        details = {"texts": self.size, "theirs with item logits": f"{with_items:.2f} times ours"}
        return over(seconds, **{name: ("theirs", "ours")}) | Measured({}, details)


def random_texts(number: int, texts: int, tokens: int, words: int) -> TextBatch:
    """Batch `number` of texts of random words without padding or boundary tokens."""
    return TextBatch(
        index=torch.arange(texts) + number * texts,
        tokens=torch.randint(len(SPECIAL_TOKENS), words, (texts, tokens)),
        mask=torch.ones(texts, tokens, dtype=torch.bool),
        labels=torch.randint(2, (texts,)),
    )


@torch.no_grad()
def spread_out(model: FlatClassifier, batches: Sequence[TextBatch]) -> FlatClassifier:
    """The model with attention and predictions about as spread as after training.

    Untrained attention is almost uniform and every decision is clear, which could make tests too
    easy and differences too small to see. The last layers are therefore scaled, and the bias is
    moved: the largest weight of a text is about 0.2, and each class has about half of the texts.
    """
    model.attention.get_parameter("value.weight").mul_(_PEAKED)
    model.decoder.weight.mul_(_SPREAD)
    model.decoder.bias.sub_(torch.cat([model(batch).logits[:, 1] for batch in batches]).median())
    return model


def recompute_item_logits(model: FlatClassifier, output: AttentionOutput) -> AttentionOutput:
    """The output with its item logits recomputed from its hidden states."""
    return replace(output, item_logits=pad(model.decoder(output.states), (1, 0)).unsqueeze(1))


def read_config(name: str) -> dict[str, Any]:
    """What a file of configs/ holds."""
    found: dict[str, Any] = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def arguments(name: str) -> dict[str, Any]:
    """The arguments in a file of configs/."""
    found: dict[str, Any] = read_config(name)["init_args"]
    return found


def corpus_of(name: str, **changes: object) -> TextDataModule:
    """The corpus of a file in configs/data, some of its options changed."""
    return TextDataModule(**arguments(f"data/{name}") | changes)


def configured_tests(name: str, programs: bool = False) -> list[InterpretabilityTest]:
    """The tests of a file of configs/tests/, by default without linear programs, as several_classes has."""
    entries = read_config(f"tests/{name}")["trainer"]["callbacks+"]
    for entry in entries:
        if entry["class_path"].endswith(".AdversarialAttention") and not programs:
            entry.setdefault("init_args", {})["program_instances"] = 0
    return [instantiate_class((), entry) for entry in entries]


def median_length_batch(dataset: TokenDataset, texts: int) -> TextBatch:
    """The batch of median length among those that evaluation loads, sorted by length."""
    batches = list(OnceSampler(dataset.lengths, texts))
    batches.sort(key=lambda rows: int(dataset.lengths[rows].max()))
    return dataset[batches[len(batches) // 2]]
