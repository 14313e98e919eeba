"""Every test measures a text as if the classes that it does not allow did not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import NOT_ALLOWED, AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    BaseDivergence,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    Predictions,
    SingleErasure,
)
from attnlight.callbacks.adversarial_attention import GradientSearch
from attnlight.functional import max_js
from attnlight.models import FlatClassifier
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from tests.callbacks.handmade import Hidden, batch_of, random_output
from tests.functional.test_allowed_classes import (
    CLASSES,
    SETS,
    allowed_of,
    chosen,
    removed,
    restricted,
)

Columns = dict[str, Any]


class Answers(nn.Module):
    """A classifier that gives each text its allowed classes, or all texts the same `classes`."""

    def __init__(self, dtype: torch.dtype, affine: bool, classes: list[int] | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        sizes: Any = {"embedding_size": 8, "hidden_size": 6, "embedding_scale": 1.0}
        self.network = FlatClassifier(30, CLASSES, encoder="bilstm", **sizes)
        for part in (self.network.attention, self.network.decoder):
            for parameter in part.parameters():
                nn.init.normal_(parameter, std=1.5)
        self.to(dtype).eval()
        self.affine, self.classes = affine, classes

    def answers(self, logits: Tensor, allowed: Tensor) -> Tensor:
        """Logits of the classes from logits (B, ..., C) of all."""
        if self.classes is not None:
            return chosen(logits, self.classes)
        allowed = allowed.view(len(allowed), *(1,) * (logits.ndim - 2), CLASSES)
        return logits.masked_fill(~allowed, NOT_ALLOWED)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        output = self.network(batch, weights, embeddings)
        allowed = batch.allowed_classes
        assert allowed is not None
        bias = output.bias.expand(len(allowed), -1)
        items = self.answers(output.item_logits, allowed) if self.affine else None
        logits, bias = self.answers(output.logits, allowed), self.answers(bias, allowed)
        memory = {"allowed_classes": allowed}
        return replace(output, logits=logits, bias=bias, item_logits=items, memory=memory)

    def embed(self, batch: TextBatch) -> Tensor:
        return self.network.embed(batch)

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        logits = self.network.readout(output, weights)
        return self.answers(logits, output.memory["allowed_classes"])


class Base:
    """Outputs of a base, drawn by row."""

    def __init__(self, classes: list[int] | None = None) -> None:
        self.classes = classes

    def read(self, rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        output = random_output(1, CLASSES, len(rows), mask.shape[1])
        logits = restricted(output).logits if self.classes is None else output.logits
        logits = logits if self.classes is None else chosen(logits, self.classes)
        weights = output.weights.masked_fill(~mask.unsqueeze(1), 0.0) + mask.unsqueeze(1) * 1e-3
        return weights / weights.sum(-1, keepdim=True), logits


def texts() -> TextBatch:
    random = torch.Generator().manual_seed(2)
    tokens = torch.randint(4, 30, (20, 9), generator=random)
    lengths = torch.randint(1, 10, (20, 1), generator=random)
    tokens = tokens.masked_fill(torch.arange(9) >= lengths, 0)
    labels = torch.tensor([SETS[row % len(SETS)][0] for row in range(20)])
    return TextBatch(
        torch.arange(20) + 7, tokens, tokens != 0, labels, allowed_classes=allowed_of(20)
    )


SEARCH = GradientSearch(steps=20)
TESTS: dict[str, Any] = {
    "permutation": lambda: AttentionPermutation(draws=11),
    "erasure": lambda: SingleErasure(released=True),
    "flip": DecisionFlip,
    "emptied": lambda: DecisionFlip(emptied="uniform"),
    "adversary": lambda: AdversarialAttention(epsilon=0.02, search=SEARCH),
    "screening": lambda: AdversarialAttention(epsilon=0.02, program_instances=0),
    "predictions": Predictions,
}
ENCODING: dict[str, Any] = {"importance": ImportanceCorrelation, "base": BaseDivergence}


def measured(test: InterpretabilityTest, batch: TextBatch, model: AttentionModel) -> Columns:
    if isinstance(test, BaseDivergence):
        test._outputs = Base(getattr(model, "classes", None))  # type: ignore[assignment]
    with torch.no_grad():
        output = model(batch)
    return dict(test.measure(batch, output, model))  # type: ignore[arg-type]


def require_equal(mixed: Columns, alone: Columns, rows: Tensor, classes: list[int]) -> None:
    assert mixed.keys() >= alone.keys()
    for name, expected in alone.items():
        found, expected = mixed[name][rows], expected[rows]
        if name == "probabilities":
            found, expected = found[:, classes], expected[:, : len(classes)]
        if name == "base_prediction":
            expected = torch.tensor(classes)[expected]
        # A search rounds otherwise with fewer classes, and takes other steps.
        searched = name.startswith(("worst", "joint", "frontier", "search_gap"))
        atol = 2e-6 if found.dtype == torch.float32 or searched else 1e-9
        torch.testing.assert_close(
            found, expected, rtol=0, atol=atol, equal_nan=True, msg=f"{name}: {{}}".format
        )


@pytest.mark.parametrize("name", [*TESTS, *ENCODING])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [True, False])
def test_texts_are_measured_without_the_other_classes(
    affine: bool, dtype: torch.dtype, name: str
) -> None:
    kind, batch = (TESTS | ENCODING)[name], texts()
    mixed = measured(kind(), batch, Answers(dtype, affine))
    for number, classes in enumerate(SETS):
        if name == "importance" and len(classes) == 1:  # an impossible rival still has a gradient
            continue
        alone = measured(kind(), batch, Answers(dtype, affine, classes))
        require_equal(mixed, alone, torch.arange(number, len(batch), len(SETS)), classes)


@pytest.mark.parametrize("name", [name for name in TESTS if name != "emptied"])
@pytest.mark.parametrize("affine", [True, False])
def test_several_heads_are_measured_without_the_other_classes(affine: bool, name: str) -> None:
    output = random_output(3, CLASSES, rows=20)
    masked = restricted(output)

    def columns(of: AttentionOutput) -> Columns:
        given = of if affine else replace(of, item_logits=None)
        test = TESTS[name]()
        return dict(test.measure(batch_of(of), given, Hidden(of)))

    mixed = columns(masked)
    for reduced, rows, classes in removed(output):
        require_equal(mixed, columns(reduced), rows, classes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [True, False])
def test_a_text_with_one_answer_keeps_it(affine: bool, dtype: torch.dtype) -> None:
    """Only what is undefined for a constant prediction is NaN."""
    batch, model = texts(), Answers(dtype, affine)
    assert batch.allowed_classes is not None
    rows = batch.allowed_classes.sum(-1) == 1
    several = batch.mask[rows].sum(-1) > 1
    assert several.any()
    columns = {
        name: {key: values[rows] for key, values in measured(kind(), batch, model).items()}
        for name, kind in (TESTS | ENCODING).items()
    }
    with torch.no_grad():
        output = model(batch).select(rows, rows)
    assert (output.probabilities.amax(-1) == 1).all()
    for name, values in columns["permutation"].items():
        assert (values == 0).all(), name
    for name, values in columns["erasure"].items():
        assert values[several].isfinite().all(), name
        assert name.startswith("delta_weight") or (values[several] == 0).all(), name
    for name in ("flip", "emptied"):
        for key, values in columns[name].items():
            unknown = not affine and key == "never_flips_minimal"
            assert not key.startswith("never_flips") or unknown or (values == 1).all(), key
    largest = max_js(output.weights, output.mask)[:, 0]
    adversary = columns["adversary"]
    torch.testing.assert_close(adversary["worst_js"].double(), largest, rtol=0, atol=1e-6)
    assert (adversary["worst_tvd"] == 0).all()
    assert torch.equal(adversary["upper_js"], adversary["worst_js"]) or not affine
    assert (columns["predictions"]["probabilities"].amax(-1) == 1).all()
    assert all(values.isfinite().all() for values in columns["predictions"].values())
    for name, values in columns["base"].items():
        assert values[several].isfinite().all(), name
    part = batch.select(rows)
    assert (input_gradient(model, part, output) == 0).all()
    assert (leave_one_out(model, part, output)[several] == 0).all()
