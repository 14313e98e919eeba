"""Write predictions with all that an external program needs to recompute the tests."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.hooks.epoch_recorder import EpochRecorder, RecordingCallback, to_cpu
from attnlight.callbacks.hooks.text_columns import TextColumns
from attnlight.callbacks.hooks.trainer_surroundings import trainer_surroundings


class PredictionWriter(RecordingCallback):
    """Write `<run>/predictions.parquet`, one row per instance.

    Columns: index, position, and those of `TextColumns`: tokens, items, label, probabilities, attention,
    item_logits, bias and others.
    """

    @override
    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert trainer.predict_dataloaders is not None
        self._texts = TextColumns(trainer.predict_dataloaders.dataset)
        around = trainer_surroundings(trainer, pl_module, reading=True)
        known = {"classes": around.classes, "model": around.model_metadata}
        self._recorder = EpochRecorder(
            around,
            "predictions",
            metadata={"test": "predict", "measures": [], **known},
            target=Path("predictions.parquet"),
        )

    @override
    def on_predict_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: TextBatch,
        *_: Any,
        **__: Any,
    ) -> None:
        assert self._recorder is not None
        output: AttentionOutput = outputs["output"].apply(to_cpu)
        self._recorder.add(output.rows, self._texts(batch, output))

    @override
    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self._recorder is not None
        self._recorder.finish()
        self._recorder = None
