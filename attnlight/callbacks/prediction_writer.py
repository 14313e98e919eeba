"""Everything that an outside program needs to recompute any test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.epoch_recorder import EpochRecorder, RecordingCallback
from attnlight.callbacks.predictions import row_labels, row_texts


class PredictionWriter(RecordingCallback):
    """Write `<run>/predictions.parquet`, one row per instance.

    Columns: index, position, tokens (list of str), items ([start, end) in tokens per attended
    item, a word or a sentence), label (or null), probabilities, attention (per head, one weight per
    item), item_logits (per head, per item, C; null where the readout is not affine), bias (C), and
    each of the corpus's per-token extras under its own name, one value per token.
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
        output = outputs["output"].apply(lambda tensor: tensor.cpu())
        tokens = [self._words(int(index)) for index in output.rows[:, 0]]
        self._recorder.add(output.rows, _columns(batch.to("cpu"), output, tokens))

    @override
    def on_predict_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self._recorder is not None
        recorder, self._recorder = self._recorder, None
        recorder.finish()

    def _words(self, index: int) -> list[str]:
        place = np.searchsorted(self._dataset.index, index, sorter=self._order)
        words: list[str] = self._dataset.words(int(self._order[place]))
        return words


def _columns(batch: TextBatch, output: AttentionOutput, tokens: list[list[str]]) -> dict[str, Any]:
    """The columns of R rows; `tokens` holds the surface forms of each of them."""
    rows, heads, _ = output.weights.shape
    reached = output.mask.numpy()
    per_item = np.repeat(reached[:, None], heads, axis=1)
    lengths = reached.sum(axis=-1)
    attention = _nested(output.weights.numpy()[per_item], np.repeat(lengths, heads))
    label = row_labels(batch, output)
    return {
        "tokens": pa.array(tokens, pa.list_(pa.string())),
        "items": _items(batch, output),
        "label": pa.nulls(rows, pa.int64()) if label is None else label,
        "probabilities": output.probabilities,
        "attention": _lists(attention, np.full(rows, heads)),
        "item_logits": _item_logits(output, per_item, np.repeat(lengths, heads)),
        "bias": output.bias.expand(rows, -1),
        **_extras(batch, output),
    }


def _extras(batch: TextBatch, output: AttentionOutput) -> dict[str, pa.Array]:
    text = row_texts(batch, output)
    mask = batch.mask[text].numpy()
    lengths = mask.reshape(len(mask), -1).sum(axis=-1)
    return {
        name: _nested(values[text].numpy()[mask], lengths) for name, values in batch.extras.items()
    }


def _items(batch: TextBatch, output: AttentionOutput) -> pa.Array:
    """Where each attended item begins and ends among the text's tokens."""
    # Tokens of each item: 1 for a word, those of a sentence (B, S) where these are the items.
    sizes = batch.mask.long() if batch.mask.ndim == 2 else batch.mask.sum(dim=-1)
    ends = sizes.cumsum(dim=-1)
    spans = torch.stack([ends - sizes, ends], dim=-1)[row_texts(batch, output)][output.mask]
    pairs = pa.FixedSizeListArray.from_arrays(spans.int().numpy().ravel(), 2)
    return _lists(pairs, output.mask.sum(dim=-1).numpy())


def _item_logits(
    output: AttentionOutput, per_item: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> pa.Array:
    rows, heads, _ = output.weights.shape
    if output.item_logits is None:
        return pa.nulls(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))
    logits = output.item_logits.numpy()[per_item]  # (items of all rows and heads, C)
    per_class = _nested(logits.ravel(), np.full(len(logits), logits.shape[1]))
    return _lists(_lists(per_class, lengths), np.full(rows, heads))


def _nested(values: NDArray[Any], lengths: NDArray[np.int64]) -> pa.ListArray:
    return _lists(pa.array(values), lengths)


def _lists(values: pa.Array, lengths: NDArray[np.int64]) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
