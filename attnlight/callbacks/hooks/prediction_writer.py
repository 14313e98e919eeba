"""Write predictions with all that an external program needs to recompute the tests."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.hooks.epoch_recorder import EpochRecorder, RecordingCallback, on_cpu
from attnlight.callbacks.hooks.text_columns import FIRST, TextColumns
from attnlight.callbacks.hooks.trainer_surroundings import trainer_surroundings
from attnlight.records import list_column


class PredictionWriter(RecordingCallback):
    """Write `<run>/predictions.parquet`, one row per instance.

    Columns: index, position, those of `TextColumns` (tokens, items, label, probabilities, attention
    and others), item_logits (per head, per item, C; null if the readout is not affine) and bias (C).
    """

    @override
    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert trainer.predict_dataloaders is not None
        self._texts = TextColumns(trainer.predict_dataloaders.dataset)
        self._recorder = EpochRecorder(
            trainer_surroundings(trainer, pl_module, reading=True),
            "predictions",
            metadata={"test": "predict", "measures": []},
            target=Path("predictions.parquet"),
        )

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
        assert self._recorder is not None
        output: AttentionOutput = outputs["output"].apply(on_cpu)
        rows, heads, _ = output.weights.shape
        item_logits = pa.nulls(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))
        if output.item_logits is not None:
            per_item = np.repeat(output.mask.numpy()[:, None], heads, axis=1)
            logits = output.item_logits.numpy()[per_item]  # (items of all rows and heads, C)
            per_class = list_column(logits.ravel(), np.full(len(logits), logits.shape[1]))
            lengths = np.repeat(output.mask.sum(dim=-1).numpy(), heads)
            item_logits = list_column(list_column(per_class, lengths), np.full(rows, heads))
        texts = self._texts(batch, output)
        columns = {name: texts.pop(name) for name in FIRST}
        columns |= {"item_logits": item_logits, "bias": output.bias.expand(rows, -1)}
        self._recorder.add(output.rows, columns | texts)

    @override
    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self._recorder is not None
        self._recorder.finish()
        self._recorder = None
