"""`attnlight demo`: train, test and report on a generated corpus."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from attnlight.cli.arguments import VerbParser
from attnlight.cli.processes import end_with_parent

DESCRIPTION = """\
Train a classifier on generated texts in which planted words decide the label, run the cheap tests of
its attention on every validation epoch and those of the verdict card on the test split, and write the
report. This takes a few minutes on a CPU, needs no network, and replaces the run of an earlier demo."""
RUN = "checkpoints/demo/planted"
COMMANDS = (
    "fit planted_bilstm --tests cheap --experiment demo --run planted --overwrite",
    f"test {RUN} --tests card,texts",
    f"report {RUN}",
)


def main(argv: Sequence[str]) -> int:
    """Run the demo in the working directory, and return the first exit status that is not 0, or 0."""
    VerbParser("demo", description=DESCRIPTION).parse_args(argv)
    for command in COMMANDS:
        print(f"$ attnlight {command}", flush=True)
        words = [sys.executable, "-m", "attnlight", *command.split()]
        # A signal may come before `process` is known: the kernel then ends the command.
        bound = partial(end_with_parent, os.getpid())
        with subprocess.Popen(words, preexec_fn=bound) as process:  # noqa: PLW1509 - no threads
            try:
                status = process.wait()
            except (KeyboardInterrupt, SystemExit):  # by a signal
                process.terminate()
                process.wait()
                raise
        if status:
            return status
    return 0
