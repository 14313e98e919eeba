"""How the processes of a job join at its start, and end."""

import os
import signal
import sys
import threading

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from attnlight.cli.processes import exit_on_signals


class ExitOnSignals(Callback):
    """Let SIGTERM end this process of a job, and the processes that it started.

    Lightning's handler would broadcast the signal first, and hang or mix up values where the other
    processes are in another collective.
    """

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        exit_on_signals()

    on_validation_start = on_test_start = on_predict_start = on_train_start

    @override
    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, SystemExit):
            trainer.strategy.launcher.kill(signal.SIGTERM)  # type: ignore[union-attr]


class JoinTimeout(Callback):
    """End this process if the others of its job have not joined within some seconds.

    Time is measured from the construction of this callback, when model and corpus are ready, to the
    start of the verb. Collectives keep the timeout of the strategy (half an hour): a rank may take
    that long in a validation epoch, but not to start.
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
