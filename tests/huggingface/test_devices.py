"""A pretrained model on two devices, and in half precision."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.storage.checkpoint_file import read_checkpoint
from tests.commands import QUIET, attnlight_on_one, attnlight_on_two
from tests.huggingface.folders import write_model
from tests.huggingface.test_classifier import classifier, random_weights, texts
from tests.huggingface.test_commands import write_corpus


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize("items", ["pieces", "words"])
def test_two_devices_train_what_one_does(tmp_path: Path, items: str) -> None:
    data = write_corpus(tmp_path / "films")
    model = write_model(tmp_path / "bert", auto="AutoModel")
    named = [f"--model.net.path={model}", f"--data.tokenizer={model}", f"--model.net.items={items}"]
    # Adam divides gradients by their size, which makes rounding of a zero gradient a step.
    named += ["--model.optimizer.name=sgd", "--model.optimizer.learning_rate=0.05"]
    fit = ["fit", "--model=huggingface_last", f"--data={data}", *named, "--experiment=e", *QUIET]
    place: Any = {"cwd": tmp_path, "ATTNLIGHT_CACHE": str(tmp_path / "cache")}
    short = ["--trainer.max_epochs=1", "--trainer.logger=false"]
    attnlight_on_one(*fit, *short, "--run=one", "--data.batch_size=16", **place)
    attnlight_on_two(*fit, *short, "--run=two", "--data.batch_size=8", **place)
    runs = (tmp_path / f"checkpoints/e/{run}/best.ckpt" for run in ("one", "two"))
    one, two = (read_checkpoint(path, "cpu")["state_dict"] for path in runs)
    for name, values in one.items():
        torch.testing.assert_close(two[name], values, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_in_half_precision(name: str) -> None:
    """bf16 has 8 bits: attention is equal to a hundredth, and rows sum to 1 in full precision."""
    model, batch = classifier(name), texts()
    full = model(batch)
    candidates = random_weights(full, 2)
    expected = model.readout(full, candidates)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(batch)
        found = model.readout(half, candidates)
    assert {half.weights.dtype, half.logits.dtype, half.states.dtype} == {torch.float32}
    torch.testing.assert_close(half.weights, full.weights, atol=0.1, rtol=0)
    sums = half.weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6, rtol=0)
    assert float((found - expected).abs().mean()) < 0.1 * float(expected.std())
