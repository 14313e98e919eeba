"""One line of text per epoch of `fit`, for logs without a progress bar."""

import time

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from attnlight.callbacks.base import attached_tests
from attnlight.figures.tables import number


class EpochLines(Callback):
    """Print losses, metrics, the first measure of each test and the seconds after each epoch."""

    _epoch: int | None = None
    _validated = False

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.on_train_end(trainer, pl_module)
        self._epoch, self._validated = trainer.current_epoch, False
        self._began = time.monotonic()

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._validated = not trainer.sanity_checking

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # The line of the last epoch: only now has its training loss been logged.
        epoch, self._epoch = self._epoch, None
        if epoch is None or not trainer.is_global_zero:
            return
        logged = trainer.callback_metrics
        # Other logged values are of an earlier epoch.
        stages = ("train", "val") if self._validated else ("train",)
        metrics = [n for n in logged if n.count("/") == 1 and n.split("/")[0] in stages]
        measured = [
            f"val/{test.name}/{test.measures[0]}"
            for test in attached_tests(trainer)
            if test.measures and self._validated and (epoch + 1) % test.every_n_epochs == 0
        ]
        names = [*sorted(metrics, key=lambda name: not name.endswith("/loss")), *measured]
        shown = "".join(f"{name} {number(float(logged[name]))}, " for name in names)
        last = f"/{trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
        seconds = time.monotonic() - self._began
        print(f"epoch {epoch + 1}{last}: {shown}{seconds:.1f} s", flush=True)
