"""A bar on a terminal, lines elsewhere, and the items in either case."""

import io
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import attnlight.data.progress
from attnlight.callbacks.hooks.epoch_lines import BatchLines
from attnlight.data.progress import progress
from tests.bases import SMALL, Planted, classifier, trainer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is 13 seconds after the last."""
    ticks = itertools.count(0, 13)
    monkeypatch.setattr(
        attnlight.data.progress, "time", SimpleNamespace(monotonic=lambda: next(ticks))
    )


@pytest.mark.usefixtures("clock")
def test_elsewhere_a_line_each_30_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(8), "texts")) == list(range(8))
    said = capsys.readouterr()
    assert said.err.splitlines() == ["texts: 2 of 8 after 39 s", "texts: 5 of 8 after 78 s"]
    assert said.out == ""


def test_on_a_terminal_a_bar_that_leaves_what_is_printed_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(attnlight.data.progress, "Console", lambda stderr: terminal)
    for item in progress("ab", "texts"):
        print(item)
    assert "texts" in screen.getvalue()
    assert capsys.readouterr().out == "a\nb\n"


@pytest.mark.usefixtures("clock")
def test_batches_of_each_pass_of_the_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Planted(batch_size=8)
    trainer(tmp_path, BatchLines(), max_epochs=1, limit_val_batches=3).fit(
        classifier(data.spec, **SMALL), data
    )
    said = capsys.readouterr().err.splitlines()
    sizes = len(data.train_dataloader()), 3
    for name, size in zip(("train", "validate"), sizes, strict=True):
        lines = [line for line in said if line.startswith(f"{name}: batches ")]
        assert [int(line.split()[2]) for line in lines] == [*range(3, size + 1, 3)]
        assert {line.split()[4] for line in lines} == {str(size)}
