"""`attnlight.check` names the promise that a model breaks, and finds none broken in a sound one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

import attnlight
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from tests.bases import SMALL, Planted, classifier
from tests.models import translations
from tests.outside import TwoHeads
from tests.pairs import PlantedPairs, pair_task
from tests.tasks.tagged import corpus, task_of, written


class Sound(TwoHeads):
    """Two heads that keep every promise; its faults are `change` and the classes below."""

    def __init__(self, change: Callable[[AttentionOutput], Any] = lambda output: output) -> None:
        super().__init__(affine=True)
        self.change = change

    def forward(self, *given: Any, **named: Any) -> AttentionOutput:
        output: AttentionOutput = self.change(super().forward(*given, **named))
        return output


class Unnormalised(Sound):
    def forward(self, batch: TextBatch, *given: Any, **named: Any) -> AttentionOutput:
        weights = named.get("weights")
        if weights is None:
            weights = 1.1 * super().forward(batch, *given, **named).weights
        return super().forward(batch, **{**named, "weights": weights})


class OnPadding(Sound):
    def forward(self, batch: TextBatch, *given: Any, **named: Any) -> AttentionOutput:
        scores = self.scores(self.embed(batch)).transpose(1, 2)
        weights = named.pop("weights", None)
        weights = scores.softmax(-1) if weights is None else weights
        return super().forward(batch, *given, weights=weights, **named)


class IgnoresWeights(Sound):
    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        original = output.weights.unsqueeze(2).expand_as(weights)
        return super().readout(output, original)


class IgnoresEmbeddings(Sound):
    def forward(self, batch: TextBatch, *given: Any, **named: Any) -> AttentionOutput:
        return super().forward(batch, *given, **{**named, "embeddings": None})


class Detached(Sound):
    @torch.no_grad()
    def forward(self, *given: Any, **named: Any) -> AttentionOutput:
        return super().forward(*given, **named)


class BiasTwice(Sound):
    def item_logits(self, states: Tensor) -> Tensor:
        return super().item_logits(states) + self.values.bias / 2


class LastBatch(Sound):
    def forward(self, batch: TextBatch, *given: Any, **named: Any) -> AttentionOutput:
        embeddings = named.get("embeddings")
        self.last = self.embed(batch) if embeddings is None else embeddings
        return super().forward(batch, *given, **named)

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        return super().readout(replace(output, states=self.last), weights)


def drops_out(output: AttentionOutput) -> AttentionOutput:
    scale = dropout(torch.ones(len(output.logits), 1), 0.5, training=True)
    return replace(output, logits=output.logits * scale, item_logits=None)


class Trains(Sound):
    def embed(self, batch: TextBatch) -> Tensor:
        self.train()
        return super().embed(batch)


class ByPlace(Sound):
    """The first text of a batch is read differently."""

    def embed(self, batch: TextBatch) -> Tensor:
        first = torch.arange(len(batch)) == 0
        return super().embed(batch) * (1 + first[:, None, None])


def flat_weights(output: AttentionOutput) -> AttentionOutput:
    return replace(output, weights=output.weights[:, 0])


def one_logit(output: AttentionOutput) -> AttentionOutput:
    return replace(output, logits=output.logits[:, :1])


def batch_of(lengths: tuple[int, ...] = (5, 9, 2, 7)) -> TextBatch:
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(max(lengths, default=9)) < torch.tensor(lengths)[:, None]
    tokens = torch.randint(4, 50, mask.shape, generator=generator) * mask
    return TextBatch(torch.arange(len(lengths)), tokens, mask)


def model_of(kind: Callable[[], Sound]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@pytest.mark.parametrize(
    ("kind", "promise", "beside"),
    [
        (Unnormalised, "weights", {"item_logits"}),
        (OnPadding, "mask", {"weights", "padding", "order"}),
        (IgnoresWeights, "readout", set()),
        (IgnoresEmbeddings, "embeddings", set()),
        (Detached, "embeddings", set()),
        (BiasTwice, "item_logits", set()),
        (LastBatch, "state", set()),
        (partial(Sound, drops_out), "evaluation mode", None),
        (Trains, "evaluation mode", set()),
        (ByPlace, "order", set()),
        (partial(Sound, flat_weights), "shapes", set()),
        (partial(Sound, one_logit), "shapes", set()),
    ],
)
def test_a_fault_is_named(kind: Callable[[], Sound], promise: str, beside: set[str] | None) -> None:
    """`beside`: what a fault breaks too; None: all that compares two passes."""
    found = {told.partition(":")[0] for told in attnlight.check(model_of(kind), batch_of())}
    assert promise in found
    assert beside is None or found <= {promise} | beside


def test_a_model_that_raises_is_named() -> None:
    class Raises(Sound):
        def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
            if weights.shape[2] > 1:
                raise RuntimeError("one candidate\nat a time")
            return super().readout(output, weights)

    (sentence,) = attnlight.check(model_of(Raises), batch_of())
    assert sentence == "calls: RuntimeError: one candidate at a time."


@pytest.mark.parametrize("affine", [True, False])
def test_a_sound_model_of_ones_own_breaks_nothing(affine: bool) -> None:
    torch.manual_seed(0)
    assert attnlight.check(TwoHeads(affine).train(), batch_of()) == []


def test_training_mode_is_restored_and_repeated_indices_are_accepted() -> None:
    model = model_of(Sound).train()
    batch = batch_of()
    assert attnlight.check(model, replace(batch, index=torch.full((4,), -1))) == []
    assert model.training


OPTIONS: dict[str, dict[str, Any]] = {
    "bilstm": {"encoder": "bilstm"},
    "average": {"encoder": "average"},
    "cnn_dot": {"encoder": "cnn", "attention": "dot"},
    "sentences": {"encoder": "bigru", "hierarchical": True},
}


@pytest.mark.parametrize("name", [*OPTIONS, "pairs", "tokens"])
def test_networks_of_ours_break_nothing(name: str, tmp_path: Path) -> None:
    data: Any = Planted(in_sentences=name == "sentences")
    if name in OPTIONS:
        torch.manual_seed(0)
        task: Any = classifier(data.spec, **SMALL | OPTIONS[name])
    elif name == "pairs":
        data = PlantedPairs()
        task = pair_task(data.spec)
    else:
        data = corpus(written(tmp_path / "chunks"))
        task = task_of(data)
    assert attnlight.check(task, data.dataset("test")[[1, 3, 4, 9]]) == []


@pytest.mark.parametrize("attention", translations.KINDS)
def test_translation_networks_break_nothing_but_what_is_broken(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a decoder depends on the rows before, and padding of targets is no class."""
    model, batch = translations.model(attention), translations.batch()
    assert attnlight.check(model, batch) == []
    readout = model.readout
    monkeypatch.setattr(model, "readout", lambda output, weights: 1.01 * readout(output, weights))
    assert [told.partition(":")[0] for told in attnlight.check(model, batch)] == ["readout"]


@pytest.mark.parametrize(
    ("call", "data"),
    [
        (attnlight.check, batch_of()),
        *((attnlight.run, given) for given in (["a"], [batch_of()])),
        (attnlight.explain, ["a"]),
    ],
)
def test_what_is_no_model_is_refused(call: Callable[..., object], data: object) -> None:
    with pytest.raises(InputError, match="Linear is not an AttentionModel: it needs the methods"):
        call(nn.Linear(2, 2), data)


def test_a_text_without_a_token_is_refused() -> None:
    with pytest.raises(InputError, match=r"without a token \(index 1\)"):
        attnlight.check(model_of(Sound), batch_of((3, 0, 2)))


def test_texts_are_no_batch() -> None:
    with pytest.raises(InputError, match="the batch is of type list; expected a TextBatch"):
        attnlight.check(model_of(Sound), ["a film", "dull"])  # type: ignore[arg-type]
