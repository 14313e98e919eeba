"""Lines that take the place of the Trainer's progress bar in a log."""

from collections.abc import Mapping

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from attnlight.data.progress import ProgressLine

# By stage, what the Trainer's attributes call its batches.
_NAMES = {"train": "training", "validate": "val", "sanity_check": "val"}


class BatchLines(Callback):
    """Print the number of finished batches of an epoch, at most every 30 seconds."""

    _lines: Mapping[str, ProgressLine] = {}  # by stage, since validation interrupts training

    def _begin(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        stage = str(trainer.state.stage.value)  # type: ignore[union-attr]
        total = getattr(trainer, f"num_{_NAMES.get(stage, stage)}_batches")
        number = sum(total) if isinstance(total, list) else total
        self._lines = {**self._lines, stage: ProgressLine(f"{stage}: batches", number)}

    on_train_epoch_start = on_validation_epoch_start = _begin
    on_test_epoch_start = on_predict_epoch_start = _begin

    def _end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if trainer.is_global_zero:
            self._lines[str(trainer.state.stage.value)](batch_idx + 1)  # type: ignore[union-attr]

    on_train_batch_end = on_validation_batch_end = _end
    on_test_batch_end = on_predict_batch_end = _end
