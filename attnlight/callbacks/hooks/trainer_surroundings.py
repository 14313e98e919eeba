"""What tests ask of a Trainer."""

import tempfile
import weakref
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.trainer.states import TrainerFn

from attnlight.callbacks.surroundings import Stage, Surroundings

# From the Trainer's verb to the stage of a record.
STAGES: dict[str, Stage] = {"fit": "val", "validate": "val", "test": "test", "predict": "predict"}


def trainer_surroundings(
    trainer: pl.Trainer, module: pl.LightningModule, *, reading: bool = False
) -> Surroundings:
    """The surroundings of tests that a Trainer runs; collective over ranks if `reading`.

    Then the loop has started, so that there are texts, and the folder is temporary under
    `fast_dev_run`, the same on all ranks, and deleted with the result.
    """
    known: Any = trainer
    stage: Stage = STAGES[known.state.fn.value]
    folder, temporary, texts = Path(trainer.default_root_dir), None, {}
    if reading:
        if known.fast_dev_run:
            if trainer.is_global_zero:
                temporary = tempfile.TemporaryDirectory(prefix="attnlight-")
            folder = Path(trainer.strategy.broadcast(temporary.name if temporary else ""))
        loaders = getattr(known, f"{stage}_dataloaders")
        numbers = getattr(known, f"num_{stage}_batches")
        loader = loaders[0] if isinstance(loaders, list) else loaders
        number = numbers[0] if isinstance(numbers, list) else numbers
        texts = {"dataset": loader.dataset, "limited": number < len(loader)}
    limit = getattr(known, f"limit_{stage}_batches")
    around = Surroundings(
        folder=folder,
        stage=stage,
        owner=module,
        model=getattr(module, "model", None),
        strategy=trainer.strategy,
        place=(trainer.global_rank, trainer.world_size),
        epoch=trainer.current_epoch if trainer.state.fn == TrainerFn.FITTING else None,
        corpus=getattr(trainer, "datamodule", None),
        limit=None if isinstance(limit, float) and limit == 1.0 else limit,  # 1 is one batch
        checkpoint=trainer.ckpt_path,
        **texts,
    )
    if temporary is not None:
        weakref.finalize(around, temporary.cleanup)
    return around
