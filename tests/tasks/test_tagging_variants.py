"""A tagger's variant is its base in all but one respect."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from attnlight import compatibility
from attnlight.__main__ import main
from attnlight.callbacks import BaseDivergence, ImportanceCorrelation
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.records import read_metadata, read_record
from attnlight.reference import Reference, read_base
from attnlight.tasks import (
    AdversarialVariant,
    ChunkTagger,
    GuidedVariant,
    SeedVariant,
    UniformVariant,
)
from attnlight.tasks.from_base import FromBase
from tests.bases import Planted, batch_of, save, save_base
from tests.commands import CONFIGS, CPU, QUIET, attnlight_on_one, attnlight_on_two
from tests.tasks.tagged import arguments, corpus, save_tagger, trainer, written
from tests.tasks.test_variants import Gradients

KINDS: dict[str, tuple[type[FromBase], dict[str, Any]]] = {
    "uniform": (UniformVariant, {}),
    "uniform head": (UniformVariant, {"head": 1}),
    "seed": (SeedVariant, {}),
    "adversary": (AdversarialVariant, {"lambda_": 0.1}),
    "compat": (AdversarialVariant, {"lambda_": 0.1, "compat": True}),
    "imitation": (AdversarialVariant, {"lambda_": 0.0, "prediction_term": "tvd"}),
    "guided": (GuidedVariant, {}),
    "guided, tokens": (GuidedVariant, {"context": "tokens"}),
    "guided, query and key": (GuidedVariant, {"query_key": True}),
    "guided, uniform": (GuidedVariant, {"guide": "uniform"}),
    "guided, learned": (GuidedVariant, {"guide": "learned", "context": "tokens"}),
}
FROZEN = ("guided", "guided, tokens", "guided, query and key")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ChunkingDataModule:
    return corpus(written(tmp_path_factory.mktemp("chunks")))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, data: ChunkingDataModule) -> Path:
    return save_tagger(tmp_path_factory.mktemp("base") / "base.ckpt", data)


def make(kind: str, data: ChunkingDataModule, base: Path, **options: Any) -> Any:
    task, own = KINDS[kind]
    torch.manual_seed(1)
    return task(data.spec, str(base), **compatibility.arguments(own | options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"readout": "study"},
        {"readout": "residual", "layers": 2},
        {"encoder": "bilstm", "layers": 2},
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
def test_fit_reaches_every_parameter(
    kind: str, options: dict[str, Any], data: ChunkingDataModule, tmp_path: Path
) -> None:
    """Plain ddp stops where a parameter is left out."""
    task = make(kind, data, save_tagger(tmp_path / "base.ckpt", data, **options))
    watch = Gradients()
    started = trainer(tmp_path, watch, max_epochs=1, limit_train_batches=2, limit_val_batches=1)
    started.fit(task, datamodule=data)
    assert not watch.unreached
    assert math.isfinite(started.callback_metrics["train/loss"])
    assert math.isfinite(started.callback_metrics["val/f1"])


class TestArchitecture:
    def test_is_the_base_s(self, data: ChunkingDataModule, tmp_path: Path) -> None:
        path = save_tagger(tmp_path / "base.ckpt", data, layers=2, betas=(0.9, 0.98), heads=4)
        held = ChunkTagger.load_from_checkpoint(path)
        shapes = {name: p.shape for name, p in held.model.named_parameters()}
        for kind in ("seed", "adversary"):
            task = make(kind, data, path)
            assert {name: p.shape for name, p in task.model.named_parameters()} == shapes
            assert held.hparams["net"].items() <= task.hparams["net"].items()
            assert task.hparams["optimizer"]["betas"] == [0.9, 0.98]
        assert type(task).monitor({}) == ("val/loss", "min")
        assert SeedVariant.monitor({"base": str(path)}) == ("val/f1", "max")

    def test_training_replaces_the_base_s(self, data: ChunkingDataModule, base: Path) -> None:
        task = make("uniform", data, base, training={"learning_rate": 0.25, "warmup_steps": 7})
        made = task.configure_optimizers()
        expected = 0.25 * 16**-0.5 * 7**-1.5
        assert made["optimizer"].param_groups[0]["lr"] == pytest.approx(expected)
        with pytest.raises(InputError, match="optimizer has no option 'heads'"):
            make("seed", data, base, optimizer={"heads": 8})

    def test_weight_decay_of_a_part_that_the_probe_lacks(
        self, data: ChunkingDataModule, tmp_path: Path
    ) -> None:
        decay = {"recurrent": 0.1, "decoder": 0.2}
        path = save_tagger(tmp_path / "b.ckpt", data, encoder="bilstm", weight_decay=decay)
        task = make("guided, tokens", data, path)
        decays = [group["weight_decay"] for group in task.configure_optimizers().param_groups]
        assert max(decays) == 0.2
        assert 0.1 not in decays


class TestUniform:
    def test_all_heads_of_all_layers(self, data: ChunkingDataModule, tmp_path: Path) -> None:
        task = make("uniform", data, save_tagger(tmp_path / "b.ckpt", data, layers=2))
        assert not [n for n, _ in task.model.named_parameters() if "query" in n or "key" in n]
        batch = batch_of(data)
        output = task.model(batch)
        expected = (output.mask / output.mask.sum(-1, keepdim=True)).unsqueeze(1)
        torch.testing.assert_close(output.weights, expected.expand_as(output.weights))
        (below,) = output.layers
        for text, length in enumerate(batch.mask.sum(-1).tolist()):
            block = below[text, :, :length, :length]
            torch.testing.assert_close(block, torch.full_like(block, 1 / length))
            assert float(below[text].detach().sum()) == pytest.approx(2 * length, rel=1e-5)

    def test_one_head_beside_learned_ones(self, data: ChunkingDataModule, tmp_path: Path) -> None:
        path = save_tagger(tmp_path / "b.ckpt", data, heads=4, layers=2)
        task, whole = make("uniform head", data, path).eval(), read_base(path).model
        state = whole.state_dict()
        kept = [row for row in range(16) if row // 4 != 1]  # heads of 4 numbers each
        for name in ("attention.query.weight", "attention.key.weight"):
            state[name] = state[name][kept]
        task.model.load_state_dict(state)
        batch = batch_of(data)
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

    @pytest.mark.parametrize("head", [2, -1])
    def test_no_such_head(self, data: ChunkingDataModule, base: Path, head: int) -> None:
        with pytest.raises(InputError, match=f"there is no head {head} .* heads are 0 to 1"):
            make("uniform", data, base, head=head)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_loads_when_the_base_is_gone(
    kind: str, data: ChunkingDataModule, tmp_path: Path
) -> None:
    path = save_tagger(tmp_path / "base.ckpt", data)
    fingerprint = read_base(path).identity.fingerprint
    task = make(kind, data, path)
    task.adopt_corpus(data)
    saved = save(task, tmp_path / "variant.ckpt")
    path.unlink()
    loaded = type(task).load_from_checkpoint(saved)
    assert loaded.reference.identity.fingerprint == fingerprint
    assert loaded.hparams == task.hparams
    assert loaded.settled["inherited"]["base"]["fingerprint"] == fingerprint
    for name, values in task.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], values)
    text, pos = ["the cat sat"], [["DT", "NN", "VB"]]
    if kind in FROZEN:
        with pytest.raises(InputError, match="no raw text"):
            loaded.tag(text, pos)
    else:
        assert loaded.tag(text, pos) == task.tag(text, pos)


class TestRefusal:
    def test_kinds_of_bases(self, data: ChunkingDataModule, base: Path, tmp_path: Path) -> None:
        classifier = save_base(tmp_path / "classifier.ckpt", Planted())
        with pytest.raises(InputError, match=r"classifier\.ckpt has \d+ token ids, the corpus"):
            make("seed", data, classifier)
        with pytest.raises(InputError, match=r"base\.ckpt has \d+ token ids, the corpus"):
            UniformVariant(Planted().spec, str(base))

    def test_base_without_attention_of_its_own(
        self, data: ChunkingDataModule, base: Path, tmp_path: Path
    ) -> None:
        guided = make("guided", data, base)
        guided.adopt_corpus(data)
        saved = save(guided, tmp_path / "guided.ckpt")
        with pytest.raises(InputError, match="guided by another model's attention"):
            make("seed", data, saved)
        classifier = save_base(tmp_path / "classifier.ckpt", Planted())
        checkpoint = torch.load(classifier, weights_only=True)
        del checkpoint["hyper_parameters"]["net"]["attention"]
        torch.save(checkpoint, classifier)
        with pytest.raises(InputError, match="without attention"):
            make("adversary", data, classifier)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"min_document_frequency": 30}, "token ids, the corpus in `data`"),
            ({"chunks": ["VP", "NP"]}, "trained with other tags"),
            ({"case": False}, "reads the features .*case.*, the corpus in `data` has"),
        ],
    )
    def test_another_corpus(
        self, data: ChunkingDataModule, base: Path, change: dict[str, Any], sentence: str
    ) -> None:
        other = corpus(Path(data.path), **change)
        with pytest.raises(InputError, match=sentence):
            make("seed", other, base)

    def test_other_splits(self, data: ChunkingDataModule, base: Path, tmp_path: Path) -> None:
        other = corpus(Path(data.path), subset={"test": 10})
        task = make("adversary", other, base)
        with pytest.raises(InputError, match=r"base\.ckpt was trained on another corpus"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=other)


def test_the_store_holds_each_sentence_as_it_is_read_alone(
    data: ChunkingDataModule, base: Path
) -> None:
    outputs, model = Reference(base).outputs(data, "test"), read_base(base).model
    texts = data.dataset("test")
    assert len(outputs) == int(texts.lengths.sum())
    for place in range(len(texts)):
        with torch.no_grad():
            own = model(texts[[place]])
        weights, logits = outputs.read(own.rows, own.mask)
        torch.testing.assert_close(weights, own.weights, atol=2e-6, rtol=0)
        torch.testing.assert_close(logits, own.logits, atol=1e-5, rtol=1e-5)


def test_pairs_of_a_batch_are_bounded(data: ChunkingDataModule, base: Path) -> None:
    from attnlight.reference import store

    texts, model = data.dataset("train"), read_base(base).model
    before = store._CPU_PAIRS
    try:
        store._CPU_PAIRS = 200
        cut = [b for b, _ in store._batches(texts, np.arange(len(texts)), model)]
    finally:
        store._CPU_PAIRS = before
    assert sorted(i for b in cut for i in b.index.tolist()) == sorted(texts.index.tolist())
    assert all(len(b) * b.tokens.shape[1] ** 2 <= 200 or len(b) == 1 for b in cut)
    assert max(map(len, cut)) > 5


DIVERGENCE = ["-c", f"{CONFIGS}/tests/base_divergence.yaml"]


def options_of(data: ChunkingDataModule, base: Path, root: Path, kind: str) -> list[str]:
    """A short `fit` of a variant with its divergence from the base."""
    start = ["-c", f"{CONFIGS}/trainer.yaml", f"--model={CONFIGS}/models/tagger_{kind}.yaml"]
    given = [*arguments(data), f"--model.base={base}"]
    short = ["--trainer.max_epochs=1", "--trainer.logger=false", *QUIET]
    place = [f"--root={root}", "--experiment=e", "--run=r"]
    return [*start, *DIVERGENCE, *given, *short, *place]


def test_a_run_is_tested_when_its_base_is_gone(
    data: ChunkingDataModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attnlight"])
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    base = save_tagger(tmp_path / "base.ckpt", data, betas=(0.9, 0.98))
    assert main(["fit", *options_of(data, base, tmp_path, "adversarial"), *CPU]) == 0
    run = tmp_path / "e" / "r"
    said = yaml.safe_load((run / "fit.yaml").read_text())["model"]["init_args"]
    assert said["inherited"]["base"] == read_base(base).identity.held()
    command = ["test", "-c", f"{run}/fit.yaml", *DIVERGENCE, *CPU, *QUIET]
    command += [f"--ckpt_path={run}/best.ckpt"]
    assert main(command) == 0  # evaluates the base on the test split
    base.unlink()
    assert main(command) == 0
    record = read_record(run / "records/test/base_divergence.parquet").columns
    assert len(record["index"]) == int(data.dataset("test").lengths.sum())
    assert len(record["attention_js_heads"][0]) == 2


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices(data: ChunkingDataModule, tmp_path: Path) -> None:
    """Plain ddp; one process evaluates the base; both match heads alike."""
    base = save_tagger(tmp_path / "base.ckpt", data)
    cache = str(tmp_path / "cache")
    place = {"cwd": tmp_path, "ATTNLIGHT_CACHE": cache, "ATTNLIGHT_DATA": ""}
    said = attnlight_on_two("fit", *options_of(data, base, tmp_path, "adversarial"), **place)  # type: ignore[arg-type]
    assert said.count("validation texts, once") == said.count("train texts, once") == 1
    found = []
    for call in (attnlight_on_two, attnlight_on_one):
        run = tmp_path / "e" / "r"
        command = ["-c", f"{run}/fit.yaml", *DIVERGENCE, f"--ckpt_path={run}/best.ckpt", *QUIET]
        call("test", *command, **place)  # type: ignore[operator]
        path = run / "records/test/base_divergence.parquet"
        found.append((read_record(path).columns, read_metadata(path)["heads"]))
    (two, order), (one, alone_order) = found
    assert order == alone_order
    assert two["index"].tolist() == one["index"].tolist()
    for name, values in one.items():
        np.testing.assert_allclose(values, two[name], atol=5e-6, err_msg=name)


@pytest.mark.parametrize("kind", ["uniform", "adversary", "guided", "guided, query and key"])
@pytest.mark.parametrize("target", ["marked", "sentence"])
def test_of_a_corpus_with_one_answer_a_sentence(
    target: Any, kind: str, data: ChunkingDataModule, base: Path, tmp_path: Path
) -> None:
    one = corpus(Path(data.path), target=target, sentence_chunk="VP")
    path = save_tagger(tmp_path / "base.ckpt", one)
    task = make(kind, one, path)
    started = trainer(tmp_path, BaseDivergence(figures=False), max_epochs=1)
    started.fit(task, datamodule=one)
    assert math.isfinite(started.callback_metrics["val/loss"])
    started = trainer(tmp_path, BaseDivergence(figures=False), ImportanceCorrelation(figures=False))
    started.test(task, one, verbose=False)
    rows = read_record(tmp_path / "records/test/base_divergence.parquet").columns
    assert rows["index"].tolist() == one.dataset("test").index.tolist()
    if kind == "adversary":
        with pytest.raises(InputError, match="compat is the released loss"):
            make(kind, one, path, compat=True)
    if kind == "guided":
        np.testing.assert_allclose(rows["attention_js"], 0, atol=1e-9)
    with pytest.raises(InputError, match=f"has target tokens, the corpus in `data` {target}"):
        make(kind, one, base)
