"""Attention inside a transformers model beside a forward pass with sdpa."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from statistics import median
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

from attnlight.batch import TextBatch
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.huggingface.attention import attention_layers, intercept
from attnlight.probing.patches import Patch, restrict, uniform
from attnlight.probing.replay import Replay
from tests.benchmarks.measuring import Measured, interleave, ratios, spread, timed
from tests.benchmarks.scene import random_texts

# all-MiniLM-L6-v2's shape; costs do not depend on its weights.
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
MINILM |= {"intermediate_size": 1536, "vocab_size": 30_522}
CANDIDATES = 100
require_close = partial(assert_close, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def costs(
    repetitions: int = 9,
    shape: dict[str, int] = MINILM,
    sizes: tuple[tuple[int, int], ...] = ((8, 128), (2, 512), (32, 24), (32, 48)),
) -> Measured:
    """What recording, candidate attentions and switched-off heads cost, on a batch of each size."""
    scenes = [Against(shape, random_texts(0, *size, shape["vocab_size"])) for size in sizes]
    usual, long, short, between = scenes
    parts = [
        usual.recorded(repetitions, "nothing_intercepted", "all_recorded"),
        long.recorded(repetitions, "", "all_recorded_long"),
        usual.candidates(repetitions, "candidates"),
        between.candidates(repetitions, "candidates_between"),
        short.candidates(repetitions, "candidates_short"),
        usual.heads(repetitions),
    ]
    return reduce(or_, parts)


def model_of(shape: dict[str, int]) -> Any:
    """A classifier by BERT with random weights, the same on every call, that computes by sdpa."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**shape)).eval()
    model.set_attn_implementation("sdpa")
    return model


class Against:
    """Ways to compute on some texts without padding, over the plain model's forward pass."""

    def __init__(self, shape: dict[str, int], batch: TextBatch) -> None:
        self.shape, self.batch, self.plain = shape, batch, model_of(shape)
        self.inputs = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}
        self.size = f"{len(batch)} texts of {batch.tokens.shape[1]} tokens"

    def measured(self, repetitions: int, **ways: Callable[[], object]) -> Measured:
        """The ways over the forward pass; that without a name is not kept."""
        timings = {name: partial(timed, way) for name, way in ways.items()}
        forward = partial(timed, partial(self.plain, **self.inputs))
        seconds = interleave({"forward pass": forward} | timings, repetitions)
        values = {name: ratios(seconds[name], seconds["forward pass"]) for name in ways if name}
        return Measured(values, {self.size: f"forward pass {spread(seconds['forward pass'])}"})

    def recorded(self, repetitions: int, nothing: str, everything: str) -> Measured:
        """The model with our attention, nothing intercepted and all layers recorded, over sdpa's."""
        ours, plain = model_of(self.shape), self.plain
        attention_layers(ours)

        def recorded() -> dict[int, Any]:
            with intercept(record="all") as found:
                ours(**self.inputs)
            return found

        plain.set_attn_implementation("eager")
        expected = plain(**self.inputs, output_attentions=True)
        plain.set_attn_implementation("sdpa")
        require_close(ours(**self.inputs).logits, expected.logits)
        for layer, weights in enumerate(expected.attentions):
            require_close(recorded()[layer].weights, weights)
        ways = {nothing: partial(ours, **self.inputs), everything: recorded}
        return self.measured(repetitions, **ways)

    def candidates(self, repetitions: int, name: str) -> Measured:
        """Candidate attentions of the last layer over a forward pass."""
        model = HuggingFaceClassifier(model_of(self.shape)).eval()
        output, tokens = model(self.batch), self.batch.tokens.shape[1]
        scores = torch.rand(*output.weights.shape[:2], CANDIDATES, tokens)
        weights = scores.masked_fill(~output.mask[:, None, None], -torch.inf).softmax(-1)
        row = model.substituted(output, weights[:, :, 3])

        def patch(own: Tensor, allowed: Tensor) -> Tensor:
            return torch.cat([row.unsqueeze(2), own[:, :, 1:]], dim=2)

        with intercept(patch={self.shape["num_hidden_layers"] - 1: patch}):
            expected = model.transformer(**self.inputs).logits
        require_close(model.readout(output, weights)[:, 3], expected)
        found = self.measured(repetitions, **{name: partial(model.readout, output, weights)})
        share = multiplications(self.shape, tokens)
        text = f"candidates take {share:.2f} of its multiplications"
        return Measured(found.values, {f"{self.size}, {CANDIDATES} candidates": text})

    def heads(self, repetitions: int) -> Measured:
        """Each head of all layers alone made uniform, over a forward pass."""
        model = HuggingFaceClassifier(model_of(self.shape)).eval()
        layers, heads = self.shape["num_hidden_layers"], self.shape["num_attention_heads"]
        patches: list[dict[int, Patch]] = [
            {layer: restrict(uniform, heads=[head])}
            for layer in range(layers)
            for head in range(heads)
        ]

        def each() -> Tensor:
            return Replay(model, self.batch, "HeadAblation").logits(patches)

        with intercept(patch=patches[heads + 1]):
            expected = model.transformer(**self.inputs).logits
        require_close(each()[:, heads + 1], expected)
        found = self.measured(repetitions, all_heads=each)
        passes = median(found.values["all_heads"])
        text = f"{passes / len(patches):.2f} forward passes each"
        return Measured(found.values, {f"{self.size}, {len(patches)} heads": text})


def multiplications(shape: dict[str, int], tokens: int) -> float:
    """Multiplications of candidates, which share none, over those of a text's forward pass."""
    size, layers = shape["hidden_size"], shape["num_hidden_layers"]
    feed_forward = 2 * size * shape["intermediate_size"]
    candidate = tokens * size + size**2 + feed_forward + size**2
    forward = layers * tokens * (4 * size**2 + 2 * tokens * size + feed_forward) + size**2
    return CANDIDATES * candidate / forward
