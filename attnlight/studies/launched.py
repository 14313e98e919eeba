"""`attnlight` as a study starts it: a process that ends when the study does.

A study that is killed leaves no run behind that goes on alone, so that it can be started again at
once. Elsewhere than on Linux such a run goes on, and the lock that it inherited keeps others off.

The commands of a run follow each other in one process, which imports all and reads the corpus once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import torch

from attnlight.__main__ import main
from attnlight.processes import end_with_parent
from attnlight.studies.commands import PROGRAM, first_command


def run(words: Sequence[str]) -> int:
    """Run commands one after the other, until one fails.

    Args:
        words: The arguments of all, `THEN` between two.

    Returns:
        The exit status of the last one that ran.
    """
    surroundings = dict(os.environ)
    status, left = 0, list(words)
    while left and not status:
        command, left = first_command(left)
        sys.argv[1:] = command  # with which Lightning starts other ranks
        status = main()
        # Lightning leaves a seed, a rank and a port there, which a second command would take over.
        os.environ.clear()
        os.environ.update(surroundings)
        gc.collect()
        if left and not status:
            print(f"$ attnlight {' '.join(first_command(left)[0])}", flush=True)
            if torch.distributed.is_initialized():  # a process is of one group of ranks in its life
                os.execv(PROGRAM[0], [*PROGRAM, *left])
    return status


if __name__ == "__main__":
    end_with_parent()
    sys.exit(run(sys.argv[1:]))
