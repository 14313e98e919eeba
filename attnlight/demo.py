"""`attnlight demo`: train, test and report on a corpus that is made from a seed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from attnlight.arguments import VerbParser

DESCRIPTION = """\
Train a classifier on texts in which planted words decide the label, run the cheap tests of its
attention on every validation epoch and on the test split, and write the report. It takes some
minutes on a CPU, needs no network, and replaces a demo that is there."""
RUN = "checkpoints/demo/planted"
COMMANDS = (
    "fit planted_bilstm --tests cheap --experiment demo --run planted --overwrite",
    f"test {RUN} --tests cheap",
    f"report {RUN}",
)


def main(argv: Sequence[str]) -> int:
    """Run the demo, in the working directory; the exit status is that of the command that failed."""
    VerbParser("demo", description=DESCRIPTION).parse_args(argv)
    for command in COMMANDS:
        print(f"$ attnlight {command}", flush=True)
        words = [sys.executable, "-m", "attnlight", *command.split()]
        if status := subprocess.run(words, check=False).returncode:
            return status
    return 0
