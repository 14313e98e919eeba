"""One line per epoch, with what was logged in that epoch and nothing of an earlier one."""

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest

from attnlight.callbacks import AttentionPermutation, Predictions
from attnlight.callbacks.hooks.epoch_lines import EpochLines
from attnlight.figures.tables import number
from tests.bases import SMALL, Planted, classifier
from tests.bases import trainer as trainer_of
from tests.commands import CPU, QUIET, attnlight, experiment


class Logged(pl.Callback):
    """What each epoch logged, by the names of the loggers."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.keep(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.keep(trainer)

    def keep(self, trainer: pl.Trainer) -> None:
        self.epochs.append({k: float(v) for k, v in trainer.callback_metrics.items()})


def lines_of(
    folder: Path, capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[list[dict[str, str]], list[dict[str, float]]]:
    """Each line as names and values, and what was logged up to then."""
    data = Planted(batch_size=32)
    task = classifier(data.spec, **SMALL)
    tests = [Predictions(figures=False), AttentionPermutation(every_n_epochs=2, figures=False)]
    logged = Logged()
    trainer_of(folder, *tests, EpochLines(), logged, max_epochs=3, **options).fit(task, data)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    found = []
    for epoch, line in enumerate(said):
        assert line.startswith(f"epoch {epoch + 1}/3: ")
        assert re.search(r"\d\.\d s$", line)
        pairs = (pair.split(" ") for pair in line.partition(": ")[2].split(", ")[:-1])
        found.append({name: value for name, value in pairs})
    return found, logged.epochs[1:]


def test_each_line_is_of_its_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, logged = lines_of(tmp_path, capsys)
    assert len(lines) == 3
    metrics = {f"val/{m}" for m in ("accuracy", "f1_macro", "auroc", "loss")} | {"train/loss"}
    for epoch, line in enumerate(lines):
        assert metrics | {"val/predictions/max_attention"} <= line.keys()
        assert ("val/attention_permutation/median_tvd" in line) == (epoch == 1)
        assert line == {name: number(logged[epoch][name]) for name in line}
    assert [list(line)[:2] for line in lines] == [["val/loss", "train/loss"]] * 3


def test_an_epoch_without_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, _ = lines_of(tmp_path, capsys, check_val_every_n_epoch=3)
    assert [set(line) == {"train/loss"} for line in lines] == [True, True, False]


@pytest.mark.slow
def test_a_fit_without_a_terminal_prints_lines_and_no_bar(tmp_path: Path) -> None:
    sizes = [f"--data.{split}_size=60" for split in ("train", "validation", "test")]
    place = [f"--root={tmp_path}", "--experiment=e", "--run=r", "--trainer.logger=false"]
    command = [*experiment("planted_bilstm"), *sizes, *place, *CPU, QUIET[1]]
    said = attnlight("fit", *command, "--trainer.max_epochs=2", cwd=tmp_path).splitlines()
    assert [line.partition(":")[0] for line in said if line.startswith("epoch ")] == [
        "epoch 1/2",
        "epoch 2/2",
    ]
    assert not any("━" in line or "Tip:" in line for line in said)
    assert "RichProgressBar" in (tmp_path / "e/r/fit.yaml").read_text()
