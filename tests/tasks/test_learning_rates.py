"""Learning rates by layer and by step, against their formulas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

from attnlight.tasks import ChunkTagger
from attnlight.tasks.options import Optimizer
from tests.tasks.tagged import SMALL, corpus, trainer, written

# Of a pretrained model of each kind: name of its layers, and the number of parameters above them all.
LAYERS = {
    "bert": (r"encoder\.layer\.(\d)\.", ("pooler", "classifier")),
    "distilbert": (r"transformer\.layer\.(\d)\.", ("pre_classifier", "classifier")),
    "modernbert": (r"layers\.(\d)\.", ("final_norm", "head", "classifier")),
    "gpt2": (r"\.h\.(\d)\.", ("ln_f", "score")),
    "gemma3": (r"layers\.(\d)\.", ("model.norm", "score")),
}


def rates(model: nn.Module, **options: Any) -> dict[str, float]:
    """Learning rate of each parameter by name."""
    built = Optimizer("adamw", 0.1, **options).build(model)
    of = {id(one): float(g["lr"]) for g in built.param_groups for one in g["params"]}
    assert len(of) == sum(len(group["params"]) for group in built.param_groups)
    return {name: of[id(one)] for name, one in model.named_parameters() if one.requires_grad}


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layerwise_rates_of_a_pretrained_model(name: str, pooled: bool) -> None:
    pytest.importorskip("transformers")
    from attnlight.huggingface import HuggingFacePooledClassifier
    from tests.huggingface.models import MODELS
    from tests.huggingface.test_classifier import classifier

    model: Any = classifier(name)
    if pooled:
        model = HuggingFacePooledClassifier(MODELS[name](), 3)
    pattern, above = LAYERS[name]
    if pooled:
        above = ("ln_f", "final_norm", "model.norm", "attention.key", "attention.", "decoder")
    found = rates(model, layerwise_lr_decay=0.5)
    layers = len(model.attention_layers)
    for key, rate in found.items():
        layer = re.search(pattern, key)
        number = int(layer[1]) + 1 if layer else 0
        if not layer and any(part in key for part in above):
            number = layers + 1
        assert rate == pytest.approx(0.1 * 0.5 ** (layers + 1 - number)), key
    assert len(set(found.values())) == layers + 2


class Rates(pl.Callback):
    """Learning rates and losses of all steps."""

    def __init__(self) -> None:
        self.rates: list[list[float]] = []
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, task: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))

    def on_before_optimizer_step(self, trainer: Any, task: Any, optimizer: Any) -> None:
        self.rates.append([group["lr"] for group in optimizer.param_groups])


def train(folder: Path, epochs: int = 2, steps: int = 5, **optimizer: Any) -> Rates:
    """Train a tagger of two layers."""
    data, seen = corpus(written(folder)), Rates()
    torch.manual_seed(0)
    task = ChunkTagger(
        data.spec, net={**SMALL, "layers": 2}, optimizer={"name": "adamw", **optimizer}
    )
    limits: dict[str, Any] = {"limit_train_batches": steps, "limit_val_batches": 0}
    trainer(folder, seen, max_epochs=epochs, **limits).fit(task, data)
    return seen


class TestWarmup:
    @pytest.mark.parametrize(("warmup", "count"), [(4, 4), (0.25, 3), (20, 20)])
    @pytest.mark.parametrize("decay", [None, 0.5])
    def test_rates_by_step(
        self, tmp_path: Path, warmup: float, count: int, decay: float | None
    ) -> None:
        options = {} if decay is None else {"layerwise_lr_decay": decay}
        seen = train(tmp_path, learning_rate=0.02, warmup=warmup, **options)
        assert len(seen.rates) == 10
        top = {0.02} if decay is None else {0.02 * decay**n for n in range(4)}
        for step, found in enumerate(seen.rates):
            assert sorted(set(found)) == pytest.approx(
                sorted(rate * min(1.0, (step + 1) / count) for rate in top)
            )

    def test_without_effect(self, tmp_path: Path) -> None:
        plain = train(tmp_path / "plain", learning_rate=0.02)
        same = train(tmp_path / "same", learning_rate=0.02, warmup=0.0, layerwise_lr_decay=1.0)
        other = train(tmp_path / "other", learning_rate=0.02, layerwise_lr_decay=0.5)
        assert plain.losses == same.losses
        assert plain.losses[0] == other.losses[0]
        assert plain.losses[1:] != other.losses[1:]


def test_are_no_hyperparameters_unless_they_are_given(tmp_path: Path) -> None:
    data = corpus(written(tmp_path))
    plain = ChunkTagger(data.spec, net=SMALL).hparams["optimizer"]
    given = ChunkTagger(data.spec, net=SMALL, optimizer={"warmup": 0.1}).hparams["optimizer"]
    assert given == plain | {"warmup": 0.1}
