"""The list of options appears soon, and is what a process that imports everything prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import attnlight.cli.lightning_cli  # noqa: F401 - now: Lightning logs to the stderr of its import
from attnlight.__main__ import main


def test_the_options_of_fit_take_less_than_four_seconds_of_cpu(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    before = os.times()
    command = [sys.executable, "-m", "attnlight", "fit", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = os.times()
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 4
    assert "--trainer.max_epochs" in said
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--help"])
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("words", [["-h"], ["RUN", "--help"], ["--help", "RUN", "--seed", "1"]])
def test_sanity_lists_its_options_and_those_of_test(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["sanity", *words])
    said = capsys.readouterr().out
    assert "--max_instances" in said
    assert "--trainer.limit_test_batches" in said
