"""Lines of a log: of `fit` one per epoch, and batches in place of the Trainer's progress bar."""

import re
import textwrap
import time
from collections.abc import Mapping, Sequence

import lightning.pytorch as pl
import rich
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from typing_extensions import override

from attnlight.callbacks.base import attached_tests
from attnlight.data.progress import ProgressLine
from attnlight.figures.tables import number

_WIDTH = 10  # of a column, so that seven of them, the epoch and its seconds fit in 80
_AFTER = re.compile("(?<=[/_])")  # where a name may break
# By stage, what the Trainer's attributes call its batches.
_NAMES = {"train": "training", "validate": "val", "sanity_check": "val"}


class EpochLines(Callback):
    """Print the size of the model, then in each epoch the monitored value, losses and headlines.

    The columns are the value by which the best epoch is chosen, the training loss, the first measure
    of each test and the seconds. They are named once, and again when a test is measured first.
    """

    _epoch: int | None = None
    _validated = False
    _names: Sequence[str] = ()

    @override
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            sizes = [(p.numel(), p.requires_grad) for p in pl_module.parameters()]
            trained = sum(size for size, has_gradient in sizes if has_gradient)
            total = sum(size for size, _ in sizes)
            print(f"{type(pl_module).__name__}: {total:,} parameters, {trained:,} of them trained")

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
        keeper = trainer.checkpoint_callback
        chosen = (isinstance(keeper, ModelCheckpoint) and keeper.monitor) or "val/loss"
        # Whether each column is of this epoch: other logged values are of an earlier one.
        measured = {chosen: self._validated, "train/loss": True} | {
            f"val/{test.name}/{test.measures[0]}": self._validated
            and (epoch + 1) % test.every_n_epochs == 0
            for test in attached_tests(trainer)
            if test.measures
        }
        if list(measured) != self._names:
            self._names = list(measured)
            shown = [re.sub("^val/.*/", "", name) for name in self._names]
            broken = [textwrap.wrap(_AFTER.sub(" ", name), _WIDTH - 1) for name in shown]
            heads = [[line.replace(" ", "") for line in lines] for lines in broken]
            print_row("epoch", heads, "")
        logged = trainer.callback_metrics
        values = [
            [number(float(logged[name])) if now and name in logged else "–"]  # noqa: RUF001
            for name, now in measured.items()
        ]
        last = f"/{trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
        seconds = time.monotonic() - self._began
        print_row(f"{epoch + 1}{last}", values, f" {seconds:.{int(seconds < 9.95)}f}s")


def print_row(first: str, cells: Sequence[Sequence[str]], last: str) -> None:
    """Print a row whose cells are lists of lines; on a terminal, as many cells side by side as fit."""
    console, head = rich.get_console(), max(5, len(first))
    room = (console.width - head - len(last)) // _WIDTH if console.is_terminal else len(cells)
    for start in range(0, len(cells), max(1, room)):
        part = cells[start : start + max(1, room)]
        for line in range(-max(map(len, part)), 0):
            words = [cell[line] if line >= -len(cell) else "" for cell in part]
            text = "".join(f"{word:>{_WIDTH}}" for word in words)
            begin = first if (start, line) == (0, -1) else ""
            end = last if line == -1 and start + len(part) == len(cells) else ""
            print(f"{begin:<{head}}{text}{end}", flush=True)


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
