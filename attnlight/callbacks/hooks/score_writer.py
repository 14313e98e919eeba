"""Write scores of the words of every text, by which words can be removed from a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from typing_extensions import override

from attnlight.attribution import build_attributions
from attnlight.batch import TextBatch
from attnlight.callbacks.hooks.epoch_recorder import EpochRecorder, RecordingCallback
from attnlight.callbacks.hooks.trainer_surroundings import trainer_surroundings
from attnlight.callbacks.hooks.validate_output import validate_output
from attnlight.callbacks.score_columns import score_columns
from attnlight.data.removed_words import FOLDER
from attnlight.errors import InputError

DELETION = {"name": "occlusion", "replacement": "delete"}
_METHODS = ("attention", "gradient", "input_gradient", "integrated_gradients", DELETION)


class ScoreWriter(RecordingCallback):
    """Write `<run>/scores/<split>.parquet` of the split that `predict` reads, one row per instance.

    Columns: index, position, `prediction`, and for each method `scores_<method>`: a list of one score
    per item, for the predicted class.

    Args:
        methods: Attribution methods by name, or with options.
    """

    def __init__(self, methods: Sequence[str | dict[str, Any]] = _METHODS) -> None:
        self._methods = build_attributions(methods, "ScoreWriter")

    @override
    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.predict_loop.inference_mode:
            raise InputError("ScoreWriter takes gradients: set trainer.inference_mode to false.")
        around = trainer_surroundings(trainer, pl_module, reading=True)
        metadata = {label: method.metadata for label, method in self._methods.items()}
        self._recorder = EpochRecorder(
            around,
            "scores",
            metadata={"test": "scores", "measures": [], "methods": metadata},
            target=Path(FOLDER, f"{around.split}.parquet"),
        )
        for method in self._methods.values():
            method.split = around.dataset

    @override
    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: TextBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        output, model = validate_output(outputs, pl_module), pl_module.model
        target = output.logits.argmax(-1)
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            scores = {
                label: method(model, batch, output, target)  # type: ignore[arg-type]
                for label, method in self._methods.items()
            }
        assert self._recorder is not None
        columns = {"prediction": target, **score_columns(scores, output.mask)}
        self._recorder.add(output.rows, columns)

    @override
    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self._recorder is not None
        self._recorder.finish()
        self._recorder = None
