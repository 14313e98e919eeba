"""Measures called by hand, as in a notebook that does not say `no_grad`."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    AttentionSinks,
    AttributionCost,
    BaseDivergence,
    Faithfulness,
    GradientSearch,
    HeadAblation,
    InterpretabilityTest,
    MeasuredUse,
    Sanity,
    Texts,
)
from attnlight.callbacks.hooks.text_columns import TextColumns
from tests.callbacks.every import NEEDS, built, every
from tests.models import test_classifier as flat
from tests.models.taggers import sentences, tagger

TESTS: list[InterpretabilityTest] = [
    *built("marks"),
    AdversarialAttention(frontier=True, search=GradientSearch(starts=2, steps=3)),
    Faithfulness(replacement="attention"),
]
LAYERED: list[InterpretabilityTest] = [AttentionSinks(), HeadAblation(others=True)]


class Frozen:
    """What a base said of the rows: the same attention turned around, and other logits."""

    def read(self, rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(0)
        scores = torch.rand(len(rows), self.heads, mask.shape[1], generator=random)
        weights = scores.masked_fill(~mask.unsqueeze(1), 0)
        return weights / weights.sum(-1, keepdim=True), torch.rand(len(rows), 2, generator=random)

    heads = 1


def compare(test: InterpretabilityTest, model: AttentionModel, batch: TextBatch) -> None:
    batch.extras["evidence"] = (batch.tokens % 3 == 0).to(torch.int8)
    output: AttentionOutput = model(batch)
    assert output.logits.requires_grad
    by_hand = test.measure(batch, output, model)
    with torch.no_grad():
        expected = test.measure(batch, model(batch), model)
    assert by_hand.keys() == expected.keys()
    for name, column in expected.items():
        if isinstance(column, Tensor):
            assert not by_hand[name].requires_grad
            torch.testing.assert_close(by_hand[name], column, rtol=0, atol=0, equal_nan=True)
        if isinstance(column, pa.Array):  # as strings, in which NaN equals NaN
            assert str(by_hand[name].to_pylist()) == str(column.to_pylist())
    assert output.logits.requires_grad  # the caller's output is left as it is
    assert all(parameter.grad is None for parameter in model.parameters())  # type: ignore[attr-defined]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
@pytest.mark.parametrize("encoder", ["bilstm", "none"])
def test_classifier(test: InterpretabilityTest, encoder: str) -> None:
    compare(test, flat.model(encoder), flat.collate(flat.corpus()[:6], padding=2))


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
@pytest.mark.parametrize("readout", ["study", "residual"])
def test_tagger(test: InterpretabilityTest, readout: str) -> None:
    compare(test, tagger(readout), sentences())


@pytest.mark.parametrize("test", LAYERED, ids=lambda test: test.name)
def test_layers_of_a_tagger(test: InterpretabilityTest) -> None:
    compare(test, tagger(layers=2), sentences())


def test_base_divergence() -> None:
    test = BaseDivergence()
    test._outputs = Frozen()  # type: ignore[assignment]
    compare(test, flat.model("bilstm"), flat.collate(flat.corpus()[:6], padding=2))


def test_sanity() -> None:
    test, model = Sanity(), flat.model("bilstm")
    test._models = {"1": flat.model("cnn"), "random": flat.model("average")}
    test.metadata |= {"parts": ["decoder"]}
    compare(test, model, flat.collate(flat.corpus()[:6], padding=2))


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_texts(kind: str) -> None:
    if kind == "tagger":
        model, batch = tagger("study"), sentences()
    else:
        model, batch = flat.model("bilstm"), flat.collate(flat.corpus()[:6], padding=2)
    test = Texts()
    words = SimpleNamespace(index=batch.index.numpy(), words=lambda _: ["word"])
    test._texts = TextColumns(words)
    compare(test, model, batch)


def test_every_test_is_among_these() -> None:
    # Times differ, and measured use needs the planted corpus.
    apart = {AttributionCost, BaseDivergence, MeasuredUse, Sanity, Texts}
    assert {type(test) for test in TESTS + LAYERED} | apart == {*every(*NEEDS).values()}
