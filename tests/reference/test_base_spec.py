"""A base is read from its checkpoint alone."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.errors import InputError
from attnlight.reference import BaseSpec, read_base
from attnlight.tasks import AttentionClassifier
from tests.bases import Planted, batch_of, save_base


@pytest.fixture(scope="module")
def corpus() -> Planted:
    return Planted()


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


def test_fingerprint_is_that_of_what_decides_the_outputs(tmp_path: Path, corpus: Planted) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
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
        ({"attention": None}, "without attention"),
        ({"attention": "none"}, "without attention"),
        ({"guide": "base"}, "guided by another"),
        ({"hidden_size": 5}, "do not match"),
    ],
)
def test_other_models_are_refused(
    tmp_path: Path, corpus: Planted, changes: dict[str, Any], sentence: str
) -> None:
    path = save_base(tmp_path / "a.ckpt", corpus)
    changed(path, path, hyper_parameters=changes if "guide" in changes else {"net": changes})
    refused(path, sentence)


def test_missing_and_damaged_files_are_refused(tmp_path: Path, corpus: Planted) -> None:
    refused(tmp_path / "none.ckpt", "there is no checkpoint")
    path = save_base(tmp_path / "a.ckpt", corpus)
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
