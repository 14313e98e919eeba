"""What a run leaves beside its records: its configuration and the table at the end of a test."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
import rich
import yaml
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.cli import SaveConfigCallback
from typing_extensions import override

from attnlight.callbacks.base import InterpretabilityTest
from attnlight.files import write_text
from attnlight.report.tables import terminal_table


class RunConfig(SaveConfigCallback):
    """Write `<run>/<verb>.yaml`, the whole configuration in one file, and tell W&B.

    The checkpoint and `--overwrite` of this call are left out: the file starts the same run anew.
    What the task worked out of its arguments (`settled`) is in: it may not be there to find again.

    A run that was killed after early stopping's last epoch trains no further when it is resumed.
    """

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if trainer.is_global_zero and not self.already_saved:
            self.save_config(trainer, pl_module, stage)
            self.already_saved = True

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Checkpoints hold how long a metric has not improved, not that this ended the training.
        stoppers = (c for c in trainer.callbacks if isinstance(c, EarlyStopping))  # type: ignore[attr-defined]
        if any(stopper.wait_count >= stopper.patience for stopper in stoppers):
            trainer.should_stop = True

    @override
    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        config = self.config.clone()
        config.pop("config", None)
        config.ckpt_path, config.overwrite = None, False
        for name, value in getattr(pl_module, "settled", {}).items():
            config.model.init_args[name] = value
        text = self.parser.dump(config, skip_unset=False, skip_validation=True)
        verb = trainer.state.fn.value if trainer.state.fn else stage
        write_text(Path(trainer.default_root_dir) / f"{verb}.yaml", text)
        for logger in trainer.loggers:
            if isinstance(logger, pl.loggers.WandbLogger):
                whole = {verb: yaml.safe_load(text)}
                logger.experiment.config.update(whole, allow_val_change=True)


class SummaryTable(Callback):
    """Print the task's metrics and the tests' measures with their intervals when a test ends."""

    @override
    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        tests = {c.name for c in trainer.callbacks if isinstance(c, InterpretabilityTest)}  # type: ignore[attr-defined]
        metrics = {
            name.removeprefix("test/"): f"{float(value):.4f}"
            for name, value in trainer.callback_metrics.items()
            if name.split("/")[1] not in tests
        }
        rich.print(", ".join(f"{name} {value}" for name, value in metrics.items()))
        records = Path(trainer.default_root_dir) / "records"
        if tests and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            rich.print(terminal_table(records))
