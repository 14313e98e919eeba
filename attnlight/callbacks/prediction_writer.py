"""Write predictions with all that an external program needs to recompute the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.epoch_recorder import EpochRecorder, RecordingCallback
from attnlight.callbacks.predictions import row_labels
from attnlight.functional.readout.instances import row_texts
from attnlight.records import list_column


class PredictionWriter(RecordingCallback):
    """Write `<run>/predictions.parquet`, one row per instance.

    Columns: index, position, tokens (list of str), items ([start, end) in tokens per attended
    item, a word or a sentence), label (or null), probabilities, attention (per head, one weight per
    item), item_logits (per head, per item, C; null if the readout is not affine), bias (C), and each
    of the corpus's per-token extras under its name, one value per token. Texts with a query also
    have query (its tokens, list of str) and allowed (numbers of the classes that may be answered).
    """

    @override
    def on_predict_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert trainer.predict_dataloaders is not None
        self._dataset = trainer.predict_dataloaders.dataset
        self._order = np.argsort(self._dataset.index)
        self._recorder = EpochRecorder(
            trainer,
            "predictions",
            "predict",
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
        batch = batch.to("cpu")
        output: AttentionOutput = outputs["output"].apply(lambda tensor: tensor.cpu())
        index = output.rows[:, 0].numpy()
        places = self._order[np.searchsorted(self._dataset.index, index, sorter=self._order)]
        tokens = [self._dataset.words(int(place)) for place in places]
        rows, heads, _ = output.weights.shape
        text, label = row_texts(batch, output), row_labels(batch, output)
        lengths = output.mask.sum(dim=-1).numpy()
        by_head, per_head = np.full(rows, heads), np.repeat(lengths, heads)
        per_item = np.repeat(output.mask.numpy()[:, None], heads, axis=1)
        attention = list_column(output.weights.numpy()[per_item], per_head)
        item_logits = pa.nulls(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))
        if output.item_logits is not None:
            logits = output.item_logits.numpy()[per_item]  # (items of all rows and heads, C)
            per_class = list_column(logits.ravel(), np.full(len(logits), logits.shape[1]))
            item_logits = list_column(list_column(per_class, per_head), by_head)
        # Number of tokens of each item: 1 for a word, or the length of a sentence (B, S).
        sizes = batch.mask.long() if batch.mask.ndim == 2 else batch.mask.sum(dim=-1)
        ends = sizes.cumsum(dim=-1)
        spans = torch.stack([ends - sizes, ends], dim=-1)[text][output.mask]
        pairs = pa.FixedSizeListArray.from_arrays(spans.int().numpy().ravel(), 2)
        seen = batch.mask[text].numpy()
        counts = seen.reshape(rows, -1).sum(axis=-1)
        columns = {
            "tokens": pa.array(tokens, pa.list_(pa.string())),
            "items": list_column(pairs, lengths),
            "label": pa.nulls(rows, pa.int64()) if label is None else label,
            "probabilities": output.probabilities,
            "attention": list_column(attention, by_head),
            "item_logits": item_logits,
            "bias": output.bias.expand(rows, -1),
        }
        if batch.query is not None:
            queries = [self._dataset.query_words(int(place)) for place in places]
            allowed = torch.ones(rows, output.logits.shape[1], dtype=torch.bool)
            if batch.allowed_classes is not None:
                allowed = batch.allowed_classes[text]
            columns["query"] = pa.array(queries, pa.list_(pa.string()))
            numbers = allowed.nonzero()[:, 1].numpy()
            columns["allowed"] = list_column(numbers, allowed.sum(dim=-1).numpy())
        extras = {name: values[text].numpy()[seen] for name, values in batch.extras.items()}
        columns |= {name: list_column(values, counts) for name, values in extras.items()}
        self._recorder.add(output.rows, columns)

    @override
    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self._recorder is not None
        self._recorder.finish()
        self._recorder = None
