"""A run that is killed and started again ends where an undisturbed one ends."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands import CPU, QUIET, attnlight, attnlight_here, experiment, start, wait_for

pytestmark = pytest.mark.slow
OPTIONS = [
    *experiment("planted_bilstm"),
    "--data.train_size=3000",
    "--data.validation_size=101",
    "--model.net.dropout=0.3",
    "--model.optimizer.learning_rate=1e-4",  # accuracy rises, falls and rises
    "--trainer.max_epochs=4",
    "--trainer.logger=false",
    *CPU,
    *QUIET,
]
NOT_RESUMED = "current_score"  # of Lightning's ModelCheckpoint, and read by nothing


def read(run: Path, name: str) -> Any:
    """A checkpoint of a run, in values that compare bit by bit, its folder called RUN."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
        if isinstance(value, dict):
            return {plain(key): plain(part) for key, part in value.items() if key != NOT_RESUMED}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return value.replace(str(run), "RUN") if isinstance(value, str) else value

    return plain(torch.load(run / name, weights_only=True))


def test_killed_run_resumes_to_the_same_checkpoints(tmp_path: Path) -> None:
    place = [f"--root={tmp_path}", "--experiment=e"]
    attnlight_here("fit", *OPTIONS, *place, "--run=whole", cwd=tmp_path)
    killed = tmp_path / "e" / "killed"
    command = ["-m", "attnlight", "fit", *OPTIONS, *place, "--run=killed"]
    process = start(command, cwd=tmp_path)
    wait_for((killed / "last.ckpt").exists, 120)
    time.sleep(0.5)  # into the next epoch
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    held = torch.load(killed / "last.ckpt", weights_only=True)
    assert held["epoch"] < 3
    # What a kill in the middle of writing leaves: partial files beside the real ones.
    (killed / ".last.ckpt.abc").write_bytes(b"half")
    (killed / "records" / "val").mkdir(parents=True, exist_ok=True)
    (killed / "records/val/.predictions-1.rank0.arrow").write_bytes(b"half")
    refused = attnlight("fit", *OPTIONS, *place, "--run=killed", cwd=tmp_path, status=2)
    assert "--ckpt_path last" in refused
    attnlight("fit", *OPTIONS, *place, "--run=killed", "--ckpt_path", "last", cwd=tmp_path)
    for name in ("best.ckpt", "last.ckpt"):
        whole, resumed = read(tmp_path / "e/whole", name), read(killed, name)
        assert whole.keys() == resumed.keys()
        for key in whole:
            assert whole[key] == resumed[key], f"{key} of {name}"


def test_run_killed_after_its_early_stop_trains_no_further(tmp_path: Path) -> None:
    options = [option for option in OPTIONS if "logger" not in option and "epochs" not in option]
    options += [
        "--trainer.max_epochs=9",
        "--model.optimizer.learning_rate=0",
        "--data.train_size=64",
    ]
    place = [f"--root={tmp_path}", "--experiment=e", "--run=r"]
    options += ["--trainer.callbacks+=lightning.pytorch.callbacks.EarlyStopping"]
    options += ["--trainer.callbacks.monitor=val/accuracy", "--trainer.callbacks.patience=2"]
    run = tmp_path / "e" / "r"
    attnlight_here("fit", *options, *place, cwd=tmp_path)
    before = torch.load(run / "last.ckpt", weights_only=True)
    assert before["epoch"] == 2  # the first epoch is never beaten
    (run / "status.json").unlink()  # what is written last
    attnlight_here("fit", *options, *place, "--ckpt_path", "last", cwd=tmp_path)
    assert (run / "status.json").exists()
    assert torch.load(run / "last.ckpt", weights_only=True)["epoch"] == 2
