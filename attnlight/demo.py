"""`attnlight demo`: train, test and report on a generated corpus."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from attnlight.arguments import VerbParser

DESCRIPTION = """\
Train a classifier on generated texts in which planted words decide the label, run the cheap tests of
its attention on every validation epoch and on the test split, and write the report. This takes a few
minutes on a CPU, needs no network, and replaces the run of an earlier demo."""
RUN = "checkpoints/demo/planted"
COMMANDS = (
    "fit planted_bilstm --tests cheap --experiment demo --run planted --overwrite",
    f"test {RUN} --tests cheap",
    f"report {RUN}",
)


def main(argv: Sequence[str]) -> int:
    """Run the demo in the working directory, and return the first exit status that is not 0, or 0.

    SIGTERM and Ctrl-C end the command under way, and the demo once that has ended.
    """
    VerbParser("demo", description=DESCRIPTION).parse_args(argv)
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        for command in COMMANDS:
            print(f"$ attnlight {command}", flush=True)
            with subprocess.Popen([sys.executable, "-m", "attnlight", *command.split()]) as process:
                try:
                    status = process.wait()
                except (KeyboardInterrupt, SystemExit):
                    process.terminate()
                    process.wait()
                    raise
            if status:
                return status
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
