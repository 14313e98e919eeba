"""Every interpretability test that `attnlight.callbacks` names, and what tests of them need."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlight import callbacks
from attnlight.attribution import build_attribution
from attnlight.batch import AttentionModel, TextBatch
from attnlight.callbacks import (
    AttentionInterchange,
    BaseDivergence,
    CounterfactualUse,
    EvidenceMass,
    InterpretabilityTest,
    MeasuredUse,
    Sanity,
    Texts,
)
from attnlight.callbacks.attention_interchange import partners
from attnlight.callbacks.hooks.text_columns import TextColumns
from attnlight.functional import random_rankings
from tests.data.test_word_sampler import word_sampler

NEEDS = {
    "layers": {"AttentionSinks", "HeadAblation", "HeadRoles"},
    "marks": {"EvidenceMass", "ImpermissibleMass", "Plausibility"},
    "planted texts": {"MeasuredUse"},
    "edits": {"CounterfactualUse"},
    "links": {"AlignmentError"},
    "partners": {"AttentionInterchange"},
    "base": {"BaseDivergence"},
    "random networks": {"Sanity"},
    "words": {"Texts"},
    "time": {"AttributionCost"},
    "rows that are texts": {"ContextAblation"},
}
METHODS: list[Any] = [
    "attention",
    "gradient",
    "input_gradient",  # with signs
    {"name": "occlusion", "replacement": "delete", "label": "deletion"},
    "random",
]
LABELS = ["attention", "gradient", "input_gradient", "deletion", "random"]
# Options by which a test is cheap and records all that it can, or that have no default.
OPTIONS: dict[str, dict[str, Any]] = {
    "AdversarialAttention": {"epsilon": 0.05, "frontier": True, "evaluations": 300},
    "AttentionInterchange": {"level": "head", "least": 0.01},
    "AttentionPermutation": {"draws": 10, "head_draws": 4},
    "AttributionCost": {"methods": ["attention"], "repeats": 1},
    "BaseDivergence": {"rankings": True},
    "ContextAblation": {"methods": METHODS, "subsets": 4},
    "CounterfactualUse": {"methods": METHODS},
    "DecisionFlip": {"draws": 2},
    "ErasedAccuracy": {"draws": 2},
    "Faithfulness": {"methods": METHODS, "draws": 2, "normalized": True},
    "HeadAblation": {"others": True},
    "ImpermissibleMass": {"column": "evidence"},
    "ImportanceCorrelation": {"keep_scores": True},
    "Plausibility": {"column": "evidence", "methods": METHODS, "draws": 3, "keep_scores": True},
    "SaliencyAgreement": {"methods": METHODS, "keep_scores": True},
    "Sanity": {"methods": METHODS},
    "SingleErasure": {"released": True},
    "StateTokenAgreement": {"probes": 4},
}


def every(*needs: str) -> dict[str, type[InterpretabilityTest]]:
    """The tests by class name that need a model and its texts, and of more only `needs`."""
    without = set[str]().union(*(names for need, names in NEEDS.items() if need not in needs))
    kinds = {name: getattr(callbacks, name) for name in callbacks.__all__ if name not in without}
    return {
        name: kind
        for name, kind in kinds.items()
        if issubclass(kind, InterpretabilityTest) and kind is not InterpretabilityTest
    }


def built(*needs: str, **options: Any) -> list[InterpretabilityTest]:
    """An instance of each of these tests, with further options."""
    return [kind(**OPTIONS.get(name, {}) | options) for name, kind in every(*needs).items()]


def explained(model: Any, batch: TextBatch, target: Tensor) -> dict[str, Tensor]:
    """Scores (R, N) of `METHODS`, by label."""
    with torch.no_grad():
        output = model(batch)
    return {
        label: build_attribution(method)(model, batch, output, target)
        for label, method in zip(LABELS, METHODS, strict=True)
    }


class FakeBase:
    """Outputs of a base, drawn by text, token and item."""

    def __init__(self, heads: int, classes: int) -> None:
        self.heads, self.classes = heads, classes

    def attention(self, rows: Tensor, mask: Tensor) -> Tensor:
        items = torch.arange(mask.shape[1]) + 13 * torch.arange(self.heads)[:, None]
        scores = (items * 7 + rows.sum(-1)[:, None, None] * 3) % 11 + 1.0
        weights = (scores * mask.unsqueeze(1)).double()
        return weights / weights.sum(-1, keepdim=True).clamp(min=1.0)

    def logits(self, rows: Tensor, batch: TextBatch) -> Tensor:
        return ((torch.arange(self.classes) * 5 + rows.sum(-1)[:, None]) % 4 / 2.0).double()


class FakeSplit:
    """Texts of a batch, of which each second one is an edit of the one before."""

    def __init__(self, batch: TextBatch) -> None:
        order = batch.index.argsort()
        self.batch, self.index = batch.select(order), batch.index[order].numpy()
        self.edit_of = np.where(np.arange(len(order)) % 2, np.roll(self.index, 1), -1)

    def __getitem__(self, places: list[int]) -> TextBatch:
        return self.batch.select(torch.tensor(places))


def randomised(model: Any, seed: int) -> Any:
    """A copy of a model with other parameters."""
    other, random = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for values in other.parameters():
        values.data = 0.7 * torch.randn(values.shape, generator=random).to(values)
    return other.requires_grad_(False)


def ready(test: InterpretabilityTest, model: AttentionModel, batch: TextBatch) -> None:
    """Give a test by hand what it takes of a run before it measures."""
    for replaced in (test, *test.methods.values()):
        if getattr(replaced, "replacement", None) == "resample":
            replaced.word_sampler = word_sampler()
    if isinstance(test, BaseDivergence):
        output = model(batch)
        test._outputs = FakeBase(output.weights.shape[1], output.logits.shape[1])  # type: ignore[assignment]
    elif isinstance(test, Sanity):
        test._models = {"1": randomised(model, 1), "random": randomised(model, 2)}
        test.metadata |= {"parts": ["all"]}
    elif isinstance(test, Texts):
        words = {"words": lambda _: ["word"], "query_words": lambda _: ["word"]}
        test._mapped = batch.index.sort().values[:2].numpy()
        test._texts = TextColumns(SimpleNamespace(index=batch.index.numpy(), **words))
    elif isinstance(test, CounterfactualUse):
        test._split = FakeSplit(batch)
    elif isinstance(test, AttentionInterchange):
        test._split = FakeSplit(batch)
        test._partners = partners(test._split, test.seed)
    elif isinstance(test, EvidenceMass):
        test._stops = [7, 8] if batch.tokens.ndim == 2 else []
    elif isinstance(test, MeasuredUse):
        every_token, swaps = torch.ones(1, 60, dtype=torch.bool), torch.zeros(1, 2).long()
        test._alternatives = random_rankings(every_token, swaps, 2, 0)[0].T
        test.word_sampler = word_sampler()
