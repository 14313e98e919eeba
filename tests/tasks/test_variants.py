"""A variant is its base in all but one respect."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from attnlight.callbacks import BaseDivergence, ImportanceCorrelation
from attnlight.data.raw_text import RawText
from attnlight.errors import InputError
from attnlight.models import SelfAttentionTagger
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.tasks import AdversarialVariant, GuidedVariant, SeedVariant, UniformVariant
from attnlight.tasks.from_base import FromBase
from tests.bases import Planted, batch_of, save, save_base, trainer
from tests.tasks.conftest import TOKENS, Scene
from tests.tasks.tagged import corpus, save_tagger

Kind = tuple[type[FromBase], dict[str, Any]]
KINDS: dict[str, Kind] = {
    "uniform": (UniformVariant, {}),
    "seed": (SeedVariant, {}),
    "learned": (GuidedVariant, {"guide": "learned"}),
    "uniform guide": (GuidedVariant, {"guide": "uniform"}),
    "guided": (GuidedVariant, {"guide": "base"}),
    "shuffled": (GuidedVariant, {"guide": "shuffled"}),
    "adversary": (AdversarialVariant, {"lambda_": 0.1}),
    "imitation": (AdversarialVariant, {"lambda_": 0.0, "prediction_term": "nll"}),
}
OF_TAGGERS: dict[str, Kind] = {
    "uniform head": (UniformVariant, {"head": 1}),
    "released": (AdversarialVariant, {"lambda_": 0.1, "released": True}),
    "imitation by tvd": (AdversarialVariant, {"lambda_": 0.0, "prediction_term": "tvd"}),
    "guided, tokens": (GuidedVariant, {"context": "tokens"}),
    "guided, query and key": (GuidedVariant, {"query_key": True}),
    "learned, tokens": (GuidedVariant, {"guide": "learned", "context": "tokens"}),
}
FROZEN = ("guided", "shuffled", "guided, tokens", "guided, query and key")
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "bigru": ("three", {"encoder": "bigru"}),
    "cnn": ("three", {"encoder": "cnn", "attention": "scaled_dot"}),
    "none": ("three", {"encoder": "none", "attention": "dot", "dropout": 0.2}),
    "frozen": ("three", {"encoder": "average", "vectors": {"freeze": True}}),
    "hierarchical": ("sentences", {"encoder": "bigru", "sentence_dropout": 0.1}),
    "pair tanh": ("pairs", {"encoder": "bilstm", "decoder": "tanh"}),
    "pair affine": ("pairs", {"encoder": "cnn", "decoder": "affine", "share": True}),
    "translation additive": ("symbols", {"attention": "additive"}),
    "translation general": ("symbols", {"attention": "general"}),
    "study": ("tokens", {"readout": "study"}),
    "residual": ("tokens", {"readout": "residual", "layers": 2, "heads": 4}),
    "bilstm": ("tokens", {"encoder": "bilstm", "layers": 2}),
}
# Whose parameters are the base's, and those without scores, whose attention is given.
ALIKE = (("seed", "adversary", "imitation"), ("uniform guide", "guided", "shuffled"))
EVERY = [
    (kind, name)
    for place, (name, (scene, _)) in enumerate(ARCHITECTURES.items())
    for kind in (*KINDS, *(OF_TAGGERS if scene == "tokens" else ()))
    if not any(kind in alike and kind != alike[place % 3] for alike in ALIKE)
]
BOTH = pytest.mark.parametrize("scene", ["three", "tokens"], indirect=True)
THREE = pytest.mark.parametrize("scene", ["three"], indirect=True)


def make(kind: str, scene: Scene, base: Path, **options: Any) -> Any:
    task, own = (KINDS | OF_TAGGERS)[kind]
    torch.manual_seed(1)
    return task(scene.corpus.spec, str(base), **own | options)


def shapes(task: Any) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in task.model.named_parameters()}


@pytest.fixture(scope="module")
def untrained(scenes: dict[str, Scene], tmp_path_factory: Any) -> Callable[[str], Path]:
    """The checkpoint of a base of an architecture, written once."""

    @cache
    def written(architecture: str) -> Path:
        name, options = ARCHITECTURES[architecture]
        return scenes[name].base(tmp_path_factory.mktemp("bases"), **options)

    return written


class Gradients(pl.Callback):
    """Parameters that a step did not reach."""

    def __init__(self) -> None:
        self.unreached: set[str] = set()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.unreached |= {
            name
            for name, parameter in pl_module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        }


@pytest.mark.parametrize(("kind", "architecture"), EVERY)
def test_fit_and_test_reach_every_parameter(
    kind: str,
    architecture: str,
    scenes: dict[str, Scene],
    untrained: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """Plain ddp stops where a parameter is left out."""
    scene = scenes[ARCHITECTURES[architecture][0]]
    task = make(kind, scene, untrained(architecture))
    watch = Gradients()
    started = trainer(tmp_path, watch, max_epochs=1, limit_train_batches=2, limit_val_batches=2)
    started.fit(task, datamodule=scene.corpus)
    assert not watch.unreached
    for logged in ("train/loss", "val/loss", task.problem.monitor[0]):
        assert math.isfinite(started.callback_metrics[logged])
    trainer(tmp_path, limit_test_batches=2).test(task, scene.corpus, verbose=False)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architecture_is_the_base_s_but_for_attention_that_is_not_learned(
    architecture: str, scenes: dict[str, Scene], tmp_path: Path
) -> None:
    name, options = ARCHITECTURES[architecture]
    scene = scenes[name]
    path = scene.base(tmp_path, optimizer={"weight_decay": 0.5, "betas": (0.9, 0.98)}, **options)
    own = read_base(path)
    held = own.identity.options
    for kind in ("seed", "adversary"):
        task = make(kind, scene, path)
        assert shapes(task) == shapes(own)
        assert held["net"].items() <= task.hparams["net"].items()
        assert task.hparams["optimizer"]["weight_decay"] == 0.5
        assert list(task.hparams["optimizer"]["betas"]) == [0.9, 0.98]
    task = make("uniform", scene, path)
    own_scores = {"tokens": ("query", "key"), "symbols": ("query", "key", "value")}
    scores = own_scores.get(name, ("attention",))
    names = [key for key in shapes(own) if not any(score in key for score in scores)]
    assert shapes(task) == {key: shapes(own)[key] for key in names}
    batch = batch_of(scene.corpus)
    there = batch.attendable()
    for layer in task.model(batch).layers or ():
        reached = there if layer.ndim == 3 else there[:, None, :, None] & there[:, None, None]
        expected = reached / reached.sum(-1, keepdim=True).clamp(min=1)
        torch.testing.assert_close(layer, expected.expand_as(layer))
    for model in (task.model, make("uniform guide", scene, path).model):
        output = model(batch)
        expected = (output.mask / output.mask.sum(-1, keepdim=True)).unsqueeze(1)
        torch.testing.assert_close(output.weights, expected.expand_as(output.weights))
        assert torch.equal(output.weights[:, 0] > 0, output.mask)


class TestTrainingOptions:
    @THREE
    def test_replace_the_base_s(self, scene: Scene, tmp_path: Path) -> None:
        path = scene.base(tmp_path, optimizer={"learning_rate": 0.5, "amsgrad": True})
        task = make("uniform", scene, path, optimizer={"learning_rate": 0.25})
        group = task.configure_optimizers().param_groups[0]
        assert (group["lr"], group["amsgrad"]) == (0.25, True)

    @TOKENS
    def test_have_a_schedule_of_their_own(self, scene: Scene, base: Path) -> None:
        task = make("uniform", scene, base, optimizer={"learning_rate": 0.25, "warmup_steps": 7})
        expected = 0.25 * 16**-0.5 * 7**-1.5
        optimizer = task.configure_optimizers()["optimizer"]
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)

    @TOKENS
    def test_weight_decay_of_a_part_the_probe_lacks(self, scene: Scene, tmp_path: Path) -> None:
        decay = {"recurrent": 0.1, "decoder": 0.2}
        path = scene.base(tmp_path, encoder="bilstm", optimizer={"weight_decay": decay})
        task = make("guided, tokens", scene, path)
        decays = [group["weight_decay"] for group in task.configure_optimizers().param_groups]
        assert max(decays) == 0.2
        assert 0.1 not in decays


@BOTH
def test_seed_decides_the_start_alone(scene: Scene, base: Path) -> None:
    states = []
    for seed, known in ((3, False), (3, True), (4, False)):
        first = make("seed", scene, base)
        torch.manual_seed(seed)
        held = first.hparams["inherited"] if known else None
        task = SeedVariant(scene.corpus.spec, str(base), inherited=held)
        states.append(task.model.state_dict())
    name = "embedding.weight"
    assert torch.equal(states[0][name], states[1][name])
    assert not torch.equal(states[0][name], states[2][name])


@TOKENS
def test_one_uniform_head_beside_learned_ones(scene: Scene, tmp_path: Path) -> None:
    path = scene.base(tmp_path, heads=4, layers=2)
    task, whole = make("uniform head", scene, path).eval(), read_base(path).model
    state = whole.state_dict()
    kept = [row for row in range(16) if row // 4 != 1]  # heads of 4 numbers each
    for name in ("attention.query.weight", "attention.key.weight"):
        state[name] = state[name][kept]
    task.model.load_state_dict(state)
    batch = batch_of(scene.corpus)
    with torch.no_grad():
        ours, theirs = task.model(batch), whole(batch)
    torch.testing.assert_close(ours.weights[:, [0, 2, 3]], theirs.weights[:, [0, 2, 3]])
    uniform = ours.mask / ours.mask.sum(-1, keepdim=True)
    torch.testing.assert_close(ours.weights[:, 1], uniform)
    assert torch.equal(ours.layers[0], theirs.layers[0])
    given = theirs.weights.clone()
    given[:, 1] = uniform
    with torch.no_grad():
        torch.testing.assert_close(ours.logits, whole(batch, weights=given).logits)


@pytest.mark.parametrize(
    ("scene", "kind"),
    [("three", kind) for kind in KINDS] + [("tokens", kind) for kind in KINDS | OF_TAGGERS],
    indirect=["scene"],
)
def test_loads_when_the_base_is_gone(scene: Scene, kind: str, base: Path, tmp_path: Path) -> None:
    fingerprint = read_base(base).identity.fingerprint
    task = make(kind, scene, base)
    task.raw = RawText.of_corpus(scene.corpus)
    saved = save(task, tmp_path / "variant.ckpt")
    base.unlink()
    loaded = type(task).load_from_checkpoint(saved)
    assert loaded.reference.identity.fingerprint == fingerprint
    assert loaded.hparams == task.hparams
    known = json.loads(loaded.resolved_args["inherited"])
    assert known["base"]["fingerprint"] == fingerprint
    for name, values in task.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], values)
    texts, pos = ["the cat sat"], [["DT", "NN", "VB"]]
    if kind in FROZEN:
        with pytest.raises(InputError, match="no raw text"):
            loaded.tag(texts, pos)
    else:
        assert loaded.tag(texts, pos) == task.tag(texts, pos)
        own = task.read(texts, pos).probabilities
        torch.testing.assert_close(loaded.read(texts, pos).probabilities, own)


class TestRefusal:
    @pytest.mark.parametrize(
        ("scene", "kind"),
        [("three", "seed"), ("three", "guided"), ("tokens", "adversary")],
        indirect=["scene"],
    )
    def test_another_corpus(self, scene: Scene, kind: str, base: Path, tmp_path: Path) -> None:
        other: Any = Planted(num_classes=3, corpus_seed=1)
        if scene.save is save_tagger:
            other = corpus(Path(scene.corpus.path), subset={"test": 10})  # type: ignore[attr-defined]
        task = make(kind, Scene(other, scene.save), base)
        with pytest.raises(InputError, match=r"base\.ckpt was trained on another corpus"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=other)

    @pytest.mark.parametrize(
        ("own", "other", "words"),
        [
            ("three", "two", r"base\.ckpt has \d+ (token ids|classes), the corpus"),
            ("three", Planted(num_classes=3, vocabulary=7), r"base\.ckpt has \d+ token ids, the"),
            ("three", "tokens", r"base\.ckpt has \d+ token ids, the corpus"),
            ("tokens", "three", r"base\.ckpt has \d+ token ids, the corpus"),
            ("three", "pairs", r"is for pairs of a .*, but .* has single texts"),
            ("pairs", "three", r"is for single texts, but .* has pairs of a"),
            ("tokens", {"min_document_frequency": 30}, "token ids, the corpus in `data`"),
            ("tokens", {"chunks": ["VP", "NP"]}, "trained with other tags"),
            ("tokens", {"case": False}, "reads the features .*case.*, the corpus in `data` has"),
        ],
    )
    def test_a_base_of_other_texts(
        self, scenes: dict[str, Scene], own: str, other: Any, words: str, tmp_path: Path
    ) -> None:
        scene = scenes[own]
        if isinstance(other, dict):
            base, data = scene.base(tmp_path), corpus(Path(scene.corpus.path), **other)  # type: ignore[attr-defined]
            scene = Scene(data, save_tagger)
        else:
            texts = scenes[other] if isinstance(other, str) else Scene(other, save_base)
            base = texts.base(tmp_path)
        with pytest.raises(InputError, match=words):
            make("seed", scene, base)

    @BOTH
    def test_another_base_than_the_known(self, scene: Scene, base: Path, tmp_path: Path) -> None:
        """What a `fit.yaml` knows of its base does not silently outvote a base given beside it."""
        known = make("seed", scene, base)
        other = scene.base(tmp_path, "other", seed=1)
        task = make("uniform", scene, other, inherited=known.resolved_args["inherited"])
        with pytest.raises(InputError, match=r"other\.ckpt has been replaced"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=scene.corpus)


@TOKENS
@pytest.mark.parametrize(
    ("target", "kind"),
    [
        *(("marked", kind) for kind in ("uniform", "guided, query and key")),
        *(("sentence", kind) for kind in ("adversary", "guided")),
    ],
)
def test_of_a_corpus_with_one_answer_a_sentence(
    target: Any, kind: str, scene: Scene, base: Path, tmp_path: Path
) -> None:
    one = corpus(Path(scene.corpus.path), target=target, sentence_chunk="VP")
    path = save_tagger(tmp_path / "one.ckpt", one)
    task = make(kind, Scene(one, save_tagger), path)
    started = trainer(tmp_path, BaseDivergence(figures=False), max_epochs=1)
    started.fit(task, datamodule=one)
    assert math.isfinite(started.callback_metrics["val/loss"])
    started = trainer(tmp_path, BaseDivergence(figures=False), ImportanceCorrelation(figures=False))
    started.test(task, one, verbose=False)
    rows = read_record(tmp_path / "records/test/base_divergence.parquet").columns
    assert rows["index"].tolist() == one.dataset("test").index.tolist()
    assert isinstance(task.model, SelfAttentionTagger)
    assert math.isfinite(started.callback_metrics["test/loss"])
    assert "test/precision" not in started.callback_metrics
    if kind == "adversary":
        with pytest.raises(InputError, match="released is the loss of the paper's code"):
            make(kind, Scene(one, save_tagger), path, released=True)
    if kind == "guided":
        np.testing.assert_allclose(rows["attention_js"], 0, atol=1e-9)
    with pytest.raises(InputError, match=f"has target {target}, the corpus in `data` tokens"):
        make(kind, scene, path)
    with pytest.raises(InputError, match=f"has target tokens, the corpus in `data` {target}"):
        make(kind, Scene(one, save_tagger), base)
