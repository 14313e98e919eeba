"""One line per epoch, with what was logged in that epoch and nothing of an earlier one."""

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import rich.console

from attnlight.callbacks import AttentionPermutation, Predictions
from attnlight.callbacks.hooks import epoch_lines
from attnlight.callbacks.hooks.epoch_lines import EpochLines
from attnlight.figures.tables import number
from tests.bases import SMALL, Planted, classifier
from tests.bases import trainer as trainer_of
from tests.commands import CPU, QUIET, attnlight, experiment


class Logged(pl.Callback):
    """What each epoch logged, by the names of the loggers."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def keep(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.epochs.append({k: float(v) for k, v in trainer.callback_metrics.items()})

    on_train_epoch_start = on_train_end = keep


MEASURES = ["val/predictions/max_attention", "val/attention_permutation/median_tvd"]


def fitted(folder: Path, **options: Any) -> list[dict[str, float]]:
    """What each of three epochs logged, of a task with two tests."""
    data = Planted(batch_size=32)
    task = classifier(data.spec, **SMALL)
    tests = [Predictions(figures=False), AttentionPermutation(every_n_epochs=2, figures=False)]
    logged = Logged()
    trainer_of(folder, *tests, EpochLines(), logged, max_epochs=3, **options).fit(task, data)
    return logged.epochs[1:]


def test_each_line_is_of_its_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged = fitted(tmp_path)
    size, *header, one, two, three = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"AttentionClassifier: ([\d,]+) parameters, \1 of them trained", size)
    assert len(header) == 2
    names = [" ".join(line[start : start + 10] for line in header) for start in range(5, 45, 10)]
    assert ["".join(name.split()) for name in names] == [
        "val/loss", "train/loss", "max_attention", "median_tvd"
    ]  # fmt: skip
    for epoch, line in enumerate((one, two, three)):
        measured = ["val/loss", "train/loss", *MEASURES][: 4 if epoch == 1 else 3]
        shown = [number(logged[epoch][name]) for name in measured] + ["–"] * (epoch != 1)  # noqa: RUF001
        assert line.split()[:-1] == [f"{epoch + 1}/3", *shown]
        assert re.search(r" \d+(\.\d)?s$", line)
        assert line[5:45].split() == [
            line[start : start + 10].strip() for start in range(5, 45, 10)
        ]


def test_an_epoch_without_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted(tmp_path, check_val_every_n_epoch=3)
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert [[cell == "–" for cell in line.split()[1:4]] for line in lines] == [  # noqa: RUF001
        [True, False, True], [True, False, True], [False, False, False]
    ]  # fmt: skip


def test_a_terminal_has_no_longer_lines_than_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = rich.console.Console(force_terminal=True, width=36)
    monkeypatch.setattr(rich, "get_console", lambda: console)
    names = [["val/", "accuracy"], ["comprehen", "siveness_", "attention"], ["train/", "loss"]]
    epoch_lines.print_row("epoch", [*names, ["worst_js"]], "")
    epoch_lines.print_row("1/5", [["1"], ["2"], ["3"], ["4"]], " 1.0s")
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= 36
    assert said[:4] == [
        "                comprehen          ",
        "           val/ siveness_    train/",
        "epoch  accuracy attention      loss",
        "       worst_js",
    ]
    assert "".join(said[4:]).split() == ["1/5", "1", "2", "3", "4", "1.0s"]


@pytest.mark.slow
def test_a_fit_without_a_terminal_prints_lines_and_no_bar(tmp_path: Path) -> None:
    sizes = [f"--data.{split}_size=60" for split in ("train", "validation", "test")]
    place = [f"--root={tmp_path}", "--experiment=e", "--run=r", "--trainer.logger=false"]
    command = [*experiment("planted_bilstm"), *sizes, *place, *CPU, QUIET[1]]
    said = attnlight("fit", *command, "--trainer.max_epochs=2", cwd=tmp_path).splitlines()
    first = next(place for place, line in enumerate(said) if line.startswith("1/2 "))
    assert first <= 12  # lines before the first epoch, with those that name the columns
    assert [line[:4] for line in said if line[1:4] == "/2 "] == ["1/2 ", "2/2 "]
    assert said[-1] == "e/r"
    assert not any("━" in line or "Tip:" in line for line in said)
    assert "RichProgressBar" in (tmp_path / "e/r/fit.yaml").read_text()
