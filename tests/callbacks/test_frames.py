"""How tests stand on the readout: they leave its kind to it, and few frames lie below `measure`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import attnlight
from attnlight.batch import AttentionModel, TextBatch
from attnlight.callbacks import (
    BaseDivergence,
    Faithfulness,
    GradientSearch,
    InterpretabilityTest,
)
from attnlight.models import FlatClassifier
from attnlight.tasks import AttentionClassifier
from tests.bases import Planted, save_base, trainer
from tests.callbacks.every import every
from tests.models.taggers import sentences, tagger

PACKAGE = str(Path(attnlight.__file__).parent)
MOST = 8
SEARCH = 12  # of an ascent, whose steps call the readout of a selection of rows
OPTIONS: dict[str, dict[str, Any]] = {
    "AttentionPermutation": {"draws": 5},
    "AdversarialAttention": {
        "epsilon": 0.05,
        "frontier": True,
        "search": GradientSearch(starts=1, steps=3),
    },
    "SingleErasure": {"released": True},
    "ImpermissibleMass": {"column": "evidence"},
    "Plausibility": {"methods": ["attention", "random"]},
}
TESTS = (
    *(kind(**OPTIONS.get(name, {})) for name, kind in every("marks").items()),
    Faithfulness(replacement="attention"),
)
_UNNAMED = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class Depth:
    """Counts the named functions of the package below `measure` that are no part of a network."""

    def __init__(self, test: InterpretabilityTest) -> None:
        self.measure = type(test).measure.__wrapped__.__code__  # type: ignore[attr-defined]
        self.deepest: list[str] = []

    def event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        names: list[str] = []
        below: FrameType | None = frame
        while below is not None and below.f_code is not self.measure:
            code = below.f_code
            if isinstance(below.f_locals.get("self"), nn.Module):
                names.clear()  # the network, and what it calls, is not the test's
            elif code.co_filename.startswith(PACKAGE) and code.co_name not in _UNNAMED:
                names.append(code.co_name)
            below = below.f_back
        if below is not None and len(names) > len(self.deepest):
            self.deepest = names[::-1]


def flat(classes: int) -> tuple[AttentionModel, TextBatch]:
    torch.manual_seed(0)
    model = FlatClassifier(30, classes, embedding_size=6, hidden_size=5, embedding_scale=1.0)
    model.decoder.weight.data.mul_(9)
    tokens = torch.randint(4, 30, (6, 5))
    return model.eval(), TextBatch(torch.arange(6), tokens, tokens != 0)


SCENES = {
    "two classes": lambda: flat(2),
    "three classes": lambda: flat(3),
    "affine tagger": lambda: (tagger("residual"), sentences()),
    "opaque tagger": lambda: (tagger("study"), sentences()),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_a_measure_is_few_frames_deep(test: InterpretabilityTest, scene: str) -> None:
    model, batch = SCENES[scene]()
    batch.extras["evidence"] = batch.tokens % 2
    depth = Depth(test)
    with torch.set_grad_enabled(test.needs_gradients):
        output = model(batch)
        sys.setprofile(depth.event)
        try:
            test.measure(batch, output, model)  # type: ignore[arg-type]
        finally:
            sys.setprofile(None)
    searches = test.name == "adversarial_attention" and scene == "opaque tagger"
    assert len(depth.deepest) <= (SEARCH if searches else MOST), " > ".join(depth.deepest)


def test_the_divergence_from_a_base_is_few_frames_deep(tmp_path: Path) -> None:
    corpus = Planted()
    base = save_base(tmp_path / "base.ckpt", corpus)
    test = BaseDivergence(base=str(base), figures=False, rankings=True)
    depth, task = Depth(test), AttentionClassifier.load_from_checkpoint(base)
    sys.setprofile(depth.event)
    try:
        trainer(tmp_path, test).test(task, corpus, verbose=False)
    finally:
        sys.setprofile(None)
    assert 0 < len(depth.deepest) <= MOST, " > ".join(depth.deepest)


def test_the_readout_alone_knows_whether_it_is_affine() -> None:
    """Item logits are only written, for programs outside."""
    modules = Path(PACKAGE, "callbacks").rglob("*.py")
    reading = [path.stem for path in modules if ".item_logits" in path.read_text(encoding="utf-8")]
    assert reading == ["prediction_writer"]
