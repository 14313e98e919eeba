"""Options and corpora that tasks and variants refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models import FlatClassifier
from attnlight.tasks import (
    AdversarialVariant,
    AttentionClassifier,
    ChunkTagger,
    GuidedVariant,
    UniformVariant,
)
from attnlight.tasks.options import Optimizer
from tests.bases import SMALL, Planted, classifier, spec
from tests.models.taggers import tagger
from tests.pairs import pair_task
from tests.tasks.conftest import Scene
from tests.tasks.tagged import SMALL as SMALL_TAGGER

PUBLISHED = "released is the loss of the paper's code"
RELEASED = {"lambda_": 5e-4, "released": True}
CHECKPOINT = {"guide_checkpoint": "x"}
TAGGED = "entmax15"  # the normalizer of the tagger below
SPARSE = [("two", "sparsemax"), ("tokens", TAGGED), ("pairs", "sparsemax")]
VARIANTS: list[tuple[str, type, dict[str, Any], str]] = [
    ("two", AdversarialVariant, RELEASED | {"prediction_term": "nll"}, PUBLISHED),
    ("two", AdversarialVariant, RELEASED | {"attention_term": "js"}, PUBLISHED),
    ("tokens", AdversarialVariant, RELEASED | {"prediction_term": "tvd"}, PUBLISHED),
    ("tokens", AdversarialVariant, RELEASED | {"attention_term": "js"}, PUBLISHED),
    ("three", AdversarialVariant, RELEASED, PUBLISHED),
    ("pairs", AdversarialVariant, RELEASED, "no loss was released for pairs"),
    *(
        ("two", AdversarialVariant, {"lambda_": value}, f"lambda_ is {value}; it must")
        for value in (-1e-9, math.nan, math.inf)
    ),
    ("two", GuidedVariant, {"guide": "adversary"}, "guide adversary needs a guide_checkpoint"),
    ("tokens", GuidedVariant, {"guide": "other"}, "guide other needs a guide_checkpoint"),
    ("two", GuidedVariant, {"guide": "base"} | CHECKPOINT, "base takes no guide_checkpoint"),
    ("tokens", GuidedVariant, {"guide": "learned"} | CHECKPOINT, "learned takes no guide_"),
    ("tokens", GuidedVariant, {"guide": "uniform", "query_key": True}, "guide uniform leave it"),
    ("tokens", GuidedVariant, {"guide": "learned", "query_key": True}, "guide learned leave it"),
    ("pairs", GuidedVariant, {"context": "full"}, "options of a tagger"),
    ("tokens", UniformVariant, {"head": 2}, "there is no head 2 .* heads are 0 to 1"),
    ("tokens", UniformVariant, {"head": -1}, "there is no head -1 .* heads are 0 to 1"),
]


@pytest.mark.parametrize(("scene", "kind", "options", "message"), VARIANTS, indirect=["scene"])
def test_options_of_variants(
    scene: Scene, kind: type, options: dict[str, Any], message: str, base: Path
) -> None:
    with pytest.raises(InputError, match=message):
        kind(scene.corpus.spec, str(base), **options)


@pytest.mark.parametrize(("scene", "normalizer"), SPARSE, indirect=["scene"])
def test_divergences_that_are_infinite_where_a_base_has_no_attention(
    scene: Scene, normalizer: str, tmp_path: Path
) -> None:
    base, spec_of = str(scene.base(tmp_path, normalizer=normalizer)), scene.corpus.spec
    words = f"attention_term is kl, .*normalizer {normalizer} may be: give attention_term js"
    for options in ({}, {"attention_term": "kl"}, {"released": True}):
        with pytest.raises(InputError, match=words):
            AdversarialVariant(spec_of, base, lambda_=0.1, **options)  # type: ignore[arg-type]
    words = (
        f"normalizer {normalizer}: leave query_key out" if normalizer == TAGGED else "of a tagger"
    )
    with pytest.raises(InputError, match=words):
        GuidedVariant(spec_of, base, query_key=True)
    task = AdversarialVariant(spec_of, base, lambda_=0.1, attention_term="js")
    assert task.hparams["net"]["normalizer"] == normalizer


def texts(labels: torch.Tensor | None) -> TextBatch:
    return replace(Planted().dataset("train")[[0, 1]], labels=labels)


def validate(labels: torch.Tensor | None) -> None:
    classifier(Planted().spec, **SMALL).validation_step(texts(labels), 0)


def tag_texts() -> None:
    task = ChunkTagger(spec(Planted().vocab_size, ["O", "B-NP", "I-NP"]), SMALL_TAGGER)
    batch = texts(torch.zeros(2, dtype=torch.long))
    task._losses(batch, task.model(batch))


def train_pooled_by_layer() -> None:
    pytest.importorskip("transformers")
    from attnlight.huggingface import HuggingFacePooledClassifier
    from tests.huggingface.models import MODELS

    BY_LAYER.build(HuggingFacePooledClassifier(MODELS["bert"](), 2, encoder="average"))


QUERIES = spec(40, ["O", "B-NP"], query=True)
BY_LAYER = Optimizer(layerwise_lr_decay=0.9)
NO_LAYERS = "layerwise_lr_decay needs a model with layers .* {} has"
TASKS: list[tuple[Callable[[], Any], str]] = [
    (lambda: validate(None), "no labels"),
    (lambda: validate(torch.zeros(2, 9)), "each token"),
    (tag_texts, "no label for each token"),
    (lambda: ChunkTagger(QUERIES), r"is for single texts, but .* has pairs of a"),
    (lambda: AttentionClassifier(QUERIES), r"is for single texts, but .* has pairs of a"),
    (lambda: pair_task(spec(40, 2)), r"is for pairs of a .*, but .* has single texts"),
    *(
        (
            partial(Optimizer(layerwise_lr_decay=decay).build, tagger()),
            f"layerwise_lr_decay is {decay}; it must be above 0",
        )
        for decay in (0.0, 1.5, -1.0)
    ),
    (lambda: BY_LAYER.build(FlatClassifier(9, 2)), NO_LAYERS.format("FlatClassifier")),
    (train_pooled_by_layer, NO_LAYERS.format("HuggingFacePooledClassifier")),
    *(
        (partial(Optimizer(**options).scheduled, tagger(), 8), words)
        for options, words in (
            ({"warmup": -1.0}, "warmup is -1; expected a share of the steps"),
            ({"warmup": 2.5}, "warmup is 2.5; expected a share of the steps"),
            ({"warmup": 0.1}, "max_epochs does not bound their number"),
            ({"warmup": 0.1, "warmup_steps": 3}, "warmup_steps and warmup exclude each other"),
            ({"warmup": 0.1, "plateau_factor": 0.5}, "plateau_factor and warmup exclude each oth"),
            ({"warmup_steps": 3, "plateau_factor": 0.5}, "exclude each other"),
            ({"warmup_steps": 0}, "warmup_steps is 0"),
            *(({"plateau_factor": x}, f"plateau_factor is {x}") for x in (0.0, 1.0, 2.0)),
        )
    ),
]


@pytest.mark.parametrize(("ask", "message"), TASKS)
def test_options_and_corpora_of_tasks(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()
