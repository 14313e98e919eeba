"""Models, texts and corpora on which benchmarks measure the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
import yaml
from torch.nn.functional import pad

from attnlight.batch import SPECIAL_TOKENS, AttentionOutput, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.data.dataset import TokenDataset
from attnlight.data.samplers import OnceSampler
from attnlight.datamodules import TextDataModule
from attnlight.models import FlatClassifier
from tests.benchmarks.measuring import Measurement, spread
from tests.commands import CONFIGS

TEXTS, TOKENS, WORDS = 32, 200, 10_000
# Factors of the last layers, with which an untrained model is about as peaked as a trained one.
_PEAKED, _SPREAD = 200, 300


@dataclass(frozen=True)
class Scene:
    """A model, texts of random words, and the model's outputs.

    Args:
        model: Jain & Wallace's BiLSTM, in evaluation mode: embeddings of 300, 128 states in each
            direction, additive attention, two classes.
        batches: Batches of texts of equal length.
    """

    model: FlatClassifier
    batches: list[TextBatch]

    @classmethod
    @torch.no_grad()
    def drawn(cls, batches: int, texts: int = TEXTS, tokens: int = TOKENS) -> Scene:
        """The model and texts that the tests without re-encoding share."""
        torch.manual_seed(0)
        every = [random_texts(number, texts, tokens, WORDS) for number in range(batches)]
        return cls(spread_out(FlatClassifier(WORDS, num_classes=2).eval(), every), every)

    @property
    def size(self) -> str:
        """The texts in words."""
        texts, tokens = self.batches[0].tokens.shape
        return f"{len(self.batches)} batches of {texts} texts of {tokens} tokens"

    def outputs(self) -> list[AttentionOutput]:
        """The model's output of each batch."""
        return [self.model(batch) for batch in self.batches]

    def details(self, seconds: Mapping[str, Sequence[float]]) -> dict[str, str]:
        """Texts and times; "items" is the time of item logits, which the forward pass computes."""
        counted = [
            ours + items for ours, items in zip(seconds["ours"], seconds["items"], strict=True)
        ]
        with_items = Measurement.of_ratios(seconds["theirs"], counted, {}).median
        return {
            "texts": self.size,
            "ours": spread(seconds["ours"]),
            "theirs": spread(seconds["theirs"]),
            "item logits, which come with the forward pass": f"{spread(seconds['items'])}; with "
            f"them theirs takes {with_items:.2f} times ours",
        }


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


def arguments(name: str) -> dict[str, Any]:
    """The arguments in a file of configs."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["init_args"]
    return found


def corpus_of(name: str, **changes: object) -> TextDataModule:
    """The corpus of a file in configs/data, some of its options changed."""
    return TextDataModule(**arguments(f"data/{name}") | changes)


def configured_tests(name: str) -> list[InterpretabilityTest]:
    """The tests that a file of configs/tests/ configures, without linear programs.

    Their cost with more than two classes is measured in its own group, several_classes.
    """
    text = (CONFIGS / "tests" / f"{name}.yaml").read_text(encoding="utf-8")
    tests = []
    for entry in yaml.safe_load(text)["trainer"]["callbacks+"]:
        module, _, kind = entry["class_path"].rpartition(".")
        options = entry.get("init_args", {})
        if kind == "AdversarialAttention":
            options |= {"program_instances": 0}
        tests.append(getattr(import_module(module), kind)(**options))
    return tests


def median_length_batch(dataset: TokenDataset, texts: int) -> TextBatch:
    """The batch of median length among those that evaluation loads, sorted by length."""
    batches = list(OnceSampler(dataset.lengths, texts))
    batches.sort(key=lambda rows: int(dataset.lengths[rows].max()))
    return dataset[batches[len(batches) // 2]]
