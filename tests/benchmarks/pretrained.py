"""Attention inside a transformers model beside a forward pass with sdpa."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import or_
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from attnlight.batch import TextBatch
from attnlight.probing.patches import Patch, given, restrict, uniform
from attnlight.probing.replay import Replay
from tests.benchmarks.measuring import Measured, interleave, ratios, spread, timed
from tests.benchmarks.scene import random_texts

# all-MiniLM-L6-v2's shape; costs do not depend on its weights.
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30_522,
}
CANDIDATES = 100
require_close = partial(assert_close, rtol=1e-4, atol=1e-5)


@dataclass(frozen=True)
class Texts:
    """Texts of so many tokens for the models, without padding."""

    count: int
    tokens: int
    words: int

    @property
    def size(self) -> str:
        """The texts in words."""
        return f"{self.count} texts of {self.tokens} tokens"

    @cached_property
    def batch(self) -> TextBatch:
        """The texts."""
        return random_texts(0, self.count, self.tokens, self.words)

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The texts as the model itself takes them."""
        return {"input_ids": self.batch.tokens, "attention_mask": self.batch.mask.long()}


@torch.no_grad()
def costs(
    repetitions: int = 9,
    shape: dict[str, int] = MINILM,
    sizes: tuple[tuple[int, int], ...] = ((8, 128), (2, 512), (32, 24), (32, 48)),
) -> Measured:
    """What recording, candidate attentions and switched-off heads cost.

    Args:
        repetitions: Rounds that count.
        shape: Options of the model's configuration.
        sizes: Texts and tokens of a batch: the usual one, a long one, a short one, and one between.

    Raises:
        AssertionError: Ours disagrees with the passes of the model that it stands for.
    """
    words = shape["vocab_size"]
    usual, long, short, between = (Texts(*size, words) for size in sizes)
    parts = [
        _recorded(usual, shape, repetitions, ("nothing_intercepted", "all_recorded")),
        _recorded(long, shape, repetitions, ("", "all_recorded_long")),
        _candidates(usual, shape, repetitions, "candidates"),
        _candidates(between, shape, repetitions, "candidates_between"),
        _candidates(short, shape, repetitions, "candidates_short"),
        _heads(usual, shape, repetitions),
    ]
    return reduce(or_, parts)


def _model(shape: dict[str, int]) -> Any:
    """A classifier by BERT with random weights, the same on every call, that computes by sdpa."""
    import transformers

    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**shape)).eval()
    model.set_attn_implementation("sdpa")
    return model


def _against(
    texts: Texts, plain: Any, ways: dict[str, Callable[[], object]], repetitions: int
) -> Measured:
    """The ways over the plain model's forward pass."""
    forward = partial(plain, **texts.inputs)
    timings = {name: partial(timed, way) for name, way in ways.items()}
    seconds = interleave({"forward pass": partial(timed, forward)} | timings, repetitions)
    values = {name: ratios(seconds[name], seconds["forward pass"]) for name in ways if name}
    detail = f"forward pass {spread(seconds['forward pass'])}"
    return Measured(values, {texts.size: detail})


def _recorded(
    texts: Texts, shape: dict[str, int], repetitions: int, names: tuple[str, str]
) -> Measured:
    """The model with our attention, nothing intercepted and all layers recorded, over sdpa's."""
    from attnlight.huggingface.attention import attention_layers, intercept

    plain, ours = _model(shape), _model(shape)
    attention_layers(ours)

    def recorded() -> dict[int, Any]:
        with intercept(record="all", detach=True) as found:
            ours(**texts.inputs)
        return found

    plain.set_attn_implementation("eager")
    expected = plain(**texts.inputs, output_attentions=True)
    plain.set_attn_implementation("sdpa")
    require_close(ours(**texts.inputs).logits, expected.logits)
    for layer, weights in enumerate(expected.attentions):
        require_close(recorded()[layer].weights, weights)
    ways: dict[str, Callable[[], object]] = {
        names[0]: partial(ours, **texts.inputs),
        names[1]: recorded,
    }
    return _against(texts, plain, ways, repetitions)


def _candidates(texts: Texts, shape: dict[str, int], repetitions: int, name: str) -> Measured:
    """Candidate attentions of the last layer over a forward pass."""
    from attnlight.huggingface import HuggingFaceClassifier
    from attnlight.huggingface.attention import intercept

    plain, model = _model(shape), HuggingFaceClassifier(_model(shape)).eval()
    output = model(texts.batch)
    scores = torch.rand(*output.weights.shape[:2], CANDIDATES, texts.tokens)
    weights = scores.masked_fill(~output.mask[:, None, None], -torch.inf).softmax(-1)
    first = torch.zeros(texts.count, dtype=torch.long)
    row = given(model.substituted(output, weights[:, :, 3]), rows=first)
    with intercept(patch={shape["num_hidden_layers"] - 1: row}):
        expected = model.transformer(**texts.inputs).logits
    require_close(model.readout(output, weights)[:, 3], expected)
    found = _against(texts, plain, {name: partial(model.readout, output, weights)}, repetitions)
    share = multiplications(shape, texts.tokens)
    text = f"candidates take {share:.2f} of its multiplications"
    return Measured(found.values, {f"{texts.size}, {CANDIDATES} candidates": text})


def _heads(texts: Texts, shape: dict[str, int], repetitions: int) -> Measured:
    """Each head of all layers alone made uniform, over a forward pass."""
    from attnlight.huggingface import HuggingFaceClassifier
    from attnlight.huggingface.attention import intercept

    plain, model = _model(shape), HuggingFaceClassifier(_model(shape)).eval()
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    patches: list[dict[int, Patch]] = [
        {layer: restrict(uniform, heads=[head])} for layer in range(layers) for head in range(heads)
    ]

    def each() -> Tensor:
        return Replay(model, texts.batch, "HeadAblation").logits(patches)

    with intercept(patch=patches[heads + 1]):
        expected = model.transformer(**texts.inputs).logits
    require_close(each()[:, heads + 1], expected)
    found = _against(texts, plain, {"all_heads": each}, repetitions)
    passes = median(found.values["all_heads"])
    text = f"{passes / len(patches):.2f} forward passes each"
    return Measured(found.values, {f"{texts.size}, {len(patches)} heads": text})


def multiplications(shape: dict[str, int], tokens: int) -> float:
    """Multiplications of candidates over those of a text's forward pass, BERT's head included.

    A candidate needs its context, the output projection, the feed-forward layer and the head's dense
    layer: none of them can be shared, since each candidate has another context.
    """
    size, layers = shape["hidden_size"], shape["num_hidden_layers"]
    feed_forward = 2 * size * shape["intermediate_size"]
    candidate = tokens * size + size**2 + feed_forward + size**2
    forward = layers * tokens * (4 * size**2 + 2 * tokens * size + feed_forward) + size**2
    return CANDIDATES * candidate / forward
