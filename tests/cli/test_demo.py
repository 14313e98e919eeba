"""`attnlight demo` and a signal that ends it; what it trains is tested with the README."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attnlight.__main__ import main as program
from attnlight.cli.demo import COMMANDS, RUN
from attnlight.report.verdict.card import verdict_of
from tests.commands import CPU, QUIET, wait_for
from tests.test_configs import SMALL, TINY

# The commands of the demo, with another program in place of Python.
DEMO = (
    "import sys\nfrom attnlight.__main__ import main\nsys.executable = sys.argv[1]\n"
    "sys.argv[1:] = ['demo']\nsys.exit(main())"
)


@pytest.mark.parametrize("status", [None, 0])
def test_sigterm_ends_the_command_under_way_and_the_demo(
    tmp_path: Path, status: int | None
) -> None:
    """A command that the signal kills, and one that handles it and exits with 0."""
    program, started = tmp_path / "program", tmp_path / "started"
    trap = "" if status is None else f"trap 'exit {status}' TERM"
    program.write_text(
        f"#!/bin/bash\n{trap}\necho $$ $3 >> {started}\nwhile true; do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", DEMO, str(program)]) as demo:
        wait_for(lambda: started.is_file() and started.read_text().endswith("\n"), 100)
        demo.terminate()
        assert demo.wait(60) == 128 + signal.SIGTERM
    (line,) = started.read_text().splitlines()
    process, verb = line.split()
    assert verb == "fit"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


@pytest.mark.slow
def test_no_line_of_its_card_is_unmeasured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On few texts, by a BiLSTM."""
    few = ["--trainer.max_epochs=1", "--trainer.logger=false", *CPU, *QUIET]
    for command, options in zip(COMMANDS[:2], ([*SMALL, *TINY, *few], few[1:]), strict=True):
        assert program([*command.split(), *options]) == 0
    card = verdict_of(here / RUN)
    assert (card.kind, card.case != "unmeasured") == ("recurrent", True)
    assert "not measured" not in {line.answer for line in card.lines}
    assert "Not measured" not in capsys.readouterr().out
    assert Path(RUN, "records/test/texts.parquet").is_file()
