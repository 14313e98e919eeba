"""A time limit for the processes of a job to join at its start."""

from __future__ import annotations

import os
import sys
import threading

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override


class JoinTimeout(Callback):
    """End this process if the others of its job have not joined in time.

    Time is measured from the construction of this callback, when model and corpus are ready, to the
    start of the verb. Collectives keep the timeout of the strategy (half an hour): a rank may take
    that long in a validation epoch, but not to start.

    Args:
        seconds: The time limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._timer = threading.Timer(seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._timer.cancel()

    def _give_up(self) -> None:
        print(
            f"attnlight: the other processes of this job have not joined within {self.seconds:g} s:"
            " look at their output, or set ATTNLIGHT_JOIN_TIMEOUT to more seconds.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)  # the main thread is blocked outside Python
