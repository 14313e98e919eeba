"""A base is read from its checkpoint alone, evaluated once a split of its corpus, and for no other."""

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnlight.errors import InputError
from attnlight.problems.classification import Classification
from attnlight.reference import BaseSpec, FrozenBase, frozen_base, read_base, running_split
from attnlight.tasks import AttentionClassifier
from tests.bases import Planted, batch_of, save_base
from tests.tasks.symbols import Symbols, save_translator


@pytest.fixture
def corpus(tmp_path: Path) -> Planted:
    return Planted(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path, corpus: Planted) -> Path:
    """The checkpoint of a base of the corpus."""
    return save_base(tmp_path / "a.ckpt", corpus)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were evaluated."""
    seen: list[str] = []

    def write(*arguments: Any, split: str, **description: Any) -> None:
        seen.append(split)
        original(*arguments, split=split, **description)

    original = frozen_base.write_outputs
    monkeypatch.setattr(frozen_base, "write_outputs", write)
    return seen


def changed(path: Path, target: Path, **parts: Any) -> Path:
    """A copy of a checkpoint with other content."""
    checkpoint = torch.load(path, weights_only=True)
    parts = {name: dict(changes) for name, changes in parts.items()}
    net = parts.get("hyper_parameters", {}).pop("net", {})
    checkpoint["hyper_parameters"]["net"].update(net)
    for name, changes in parts.items():
        checkpoint[name].update(changes)
    torch.save(checkpoint, target)
    return target


def test_says_what_its_task_says(tmp_path: Path, corpus: Planted) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus, attention="scaled_dot", dropout=0.3)
    base, task = read_base(path), AttentionClassifier.load_from_checkpoint(path).eval()
    batch = batch_of(corpus)
    ours, theirs = base.model(batch), task.model(batch)
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.weights, theirs.weights)
    assert not any(parameter.requires_grad for parameter in base.model.parameters())
    assert base.identity.corpus == corpus.fingerprint
    assert base.identity.options["net"]["attention"] == "scaled_dot"
    assert BaseSpec(**asdict(base.identity)) == base.identity
    before = torch.get_rng_state()
    read_base(path)
    assert torch.equal(before, torch.get_rng_state())


def test_fingerprint_is_that_of_what_decides_the_outputs(
    tmp_path: Path, corpus: Planted, path: Path
) -> None:
    own = read_base(path).identity.fingerprint
    same = changed(path, tmp_path / "b.ckpt", loops={"other": 1}, hyper_parameters={"amsgrad": 1})
    assert read_base(same).identity.fingerprint == own
    bias = torch.load(path, weights_only=True)["state_dict"]["model.decoder.bias"]
    others = [
        changed(path, tmp_path / "c.ckpt", state_dict={"model.decoder.bias": bias + 1e-6}),
        changed(path, tmp_path / "d.ckpt", attnlight={"tokenizer": "{}"}),
        save_base(tmp_path / "e.ckpt", corpus, attention="dot"),
        save_base(tmp_path / "f.ckpt", corpus, attention="scaled_dot"),
    ]
    fingerprints = {own, *(read_base(other).identity.fingerprint for other in others)}
    assert len(fingerprints) == 5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"net": {"attention": None}}, "without attention"),
        ({"net": {"attention": "none"}}, "without attention"),
        ({"guide": "base"}, "guided by another"),
        ({"net": {"hidden_size": 5}}, "do not match"),
    ],
)
def test_other_models_are_refused(path: Path, changes: dict[str, Any], sentence: str) -> None:
    refused(changed(path, path, hyper_parameters=changes), sentence)


def test_missing_and_damaged_files_are_refused(tmp_path: Path, path: Path) -> None:
    refused(tmp_path / "none.ckpt", "there is no checkpoint")
    path.write_bytes(path.read_bytes()[:-500])
    refused(path, "damaged")


def refused(path: Path, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        read_base(path)
    assert str(path) in str(error.value)


def test_uniform_is_attention(tmp_path: Path, corpus: Planted) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus, attention="uniform")
    weights = read_base(path).model(batch_of(corpus)).weights
    assert torch.equal(weights.amax(-1), 1 / (weights > 0).sum(-1))


def test_each_split_is_evaluated_once(
    tmp_path: Path, corpus: Planted, path: Path, written: list[str]
) -> None:
    for _ in range(2):
        reference = FrozenBase(path)
        for split in ("train", "test", "train"):
            store = reference.outputs(corpus, split)
            assert store.rows == len(corpus.dataset(split))
    assert written == ["train", "test"]
    assert FrozenBase(save_base(tmp_path / "b.ckpt", corpus, seed=1)).outputs(corpus, "test")
    assert written == ["train", "test", "test"]


def test_splits_are_kept_apart(corpus: Planted, path: Path) -> None:
    model, reference = read_base(path).model, FrozenBase(path)
    for split in ("train", "validation", "test"):
        batch = batch_of(corpus, split)
        rows, mask = Classification.instances(batch)
        weights = reference.outputs(corpus, split).attention(rows, mask)
        torch.testing.assert_close(weights, model(batch).weights, atol=2e-6, rtol=0)


def test_outputs_outlive_the_checkpoint(corpus: Planted, path: Path) -> None:
    first = FrozenBase(path)
    first.outputs(corpus, "test")
    path.unlink()
    later = FrozenBase(path, first.identity)
    assert later.outputs(corpus, "test").rows == 23
    with pytest.raises(InputError, match="there is no checkpoint"):
        later.outputs(corpus, "validation")


def test_a_checkpoint_that_was_replaced_is_refused(corpus: Planted, path: Path) -> None:
    reference = FrozenBase(path)
    save_base(path, corpus, seed=1)
    with pytest.raises(InputError, match="has been replaced"):
        reference.outputs(corpus, "test")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vocabulary": 500}, "a vocabulary other than"),
        ({"corpus_seed": 1}, "another corpus or on other splits"),
        ({"test_size": 24}, "another corpus or on other splits"),
    ],
)
def test_another_corpus_is_refused(path: Path, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        FrozenBase(path).outputs(Planted(**options), "train")
    assert str(path) in str(error.value)


def test_a_corpus_is_needed(path: Path) -> None:
    with pytest.raises(InputError, match="needs its corpus"):
        FrozenBase(path).require_corpus(None)


def test_running_split() -> None:
    splits = {"training": "train", "validating": "validation", "sanity_checking": "validation"}
    splits |= {"testing": "test", "predicting": "validation"}
    for stage, split in splits.items():
        trainer: Any = SimpleNamespace(**{name: name == stage for name in splits})
        trainer.datamodule = SimpleNamespace(predict_split="validation")
        assert running_split(trainer) == split


def test_a_base_of_many_classes_runs_in_the_step(tmp_path: Path) -> None:
    """Its attention is stored and outlives the checkpoint, of its logits nothing is."""
    corpus = Symbols(cache_dir=str(tmp_path / "cache"))
    path = save_translator(tmp_path / "a.ckpt", corpus)
    first, model = FrozenBase(path), read_base(path).model
    outputs, batch = first.outputs(corpus, "test"), batch_of(corpus, "test")
    assert sum(file.stat().st_size for file in outputs.folder.iterdir()) < 10_000
    output = model(batch)
    assert torch.equal(outputs.logits(output.rows, batch), output.logits)
    assert first.outputs(corpus, "train").logits(output.rows, batch).requires_grad is False
    path.unlink()
    later = FrozenBase(path, first.identity).outputs(corpus, "test")
    weights = later.attention(output.rows, output.mask)
    torch.testing.assert_close(weights, output.weights, atol=2e-6, rtol=0)
    with pytest.raises(InputError, match="there is no checkpoint"):
        later.logits(output.rows, batch)
