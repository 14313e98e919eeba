"""The list of options appears soon, since it does without packages that are slow to import."""

import re
import subprocess
import sys

import pytest

import attnlight.cli.lightning_cli  # noqa: F401 - now: Lightning logs to the stderr of its import
from attnlight.__main__ import UNUSED, main


def test_the_options_of_fit_are_listed_without_slow_packages() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "attnlight", "fit", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--trainer.max_epochs" in found.stdout
    imported = re.findall(r"\| +([\w.]+)$", found.stderr, re.MULTILINE)
    assert "lightning.pytorch" in imported
    assert not {*UNUSED} & {*imported}


@pytest.mark.parametrize("words", [["-h"], ["RUN", "--help"], ["--help", "RUN", "--seed", "1"]])
def test_sanity_lists_its_options_and_those_of_test(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["sanity", *words])
    said = capsys.readouterr().out
    assert "--max_instances" in said
    assert "--trainer.limit_test_batches" in said
