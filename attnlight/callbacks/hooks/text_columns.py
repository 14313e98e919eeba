"""Columns of a record that show texts: their tokens, and which of them are attended to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, HasWholeWords, HasWords, TextBatch
from attnlight.callbacks.hooks.epoch_recorder import to_cpu
from attnlight.callbacks.predictions import row_labels
from attnlight.data.tokenization import HasSurface
from attnlight.errors import InputError
from attnlight.functional.readout.instances import row_texts
from attnlight.records import SCORES, list_column


class TextColumns:
    """The texts of a split, as columns of the rows of a batch.

    Raises:
        InputError: It does not give the words of its texts.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        if not isinstance(dataset, HasWords):
            raise InputError(
                f"{type(dataset).__name__} does not give the words of its texts: it needs a method "
                "`words(position)`, as the corpora of attnlight.datamodules have it."
            )
        self._dataset: Any = dataset
        self._order = np.argsort(dataset.index)

    def __call__(self, batch: TextBatch, output: AttentionOutput) -> dict[str, Any]:
        """Columns of the rows of an output.

        Returns:
            `tokens` (list of str); where the dataset knows them, the source as `text` and `offsets`
            ([start, end) in it per token); `items` ([start, end) in tokens per attended item, a word
            or a sentence), `label` (or null), `probabilities`, `attention` (per head, one weight per
            item), `item_logits` (per head, per item, C; null if the readout is not affine), `bias`
            (C; null if the output has none), each of the corpus's per-token extras under its name, one
            value per token, and for texts with a query `query` (its tokens) and `allowed` (numbers of
            the classes that may be answered).
        """
        batch, output = batch.to("cpu"), output.apply(to_cpu)
        index = output.rows[:, 0].numpy()
        places = self._order[np.searchsorted(self._dataset.index, index, sorter=self._order)]
        known = isinstance(self._dataset, HasSurface)
        surfaces = [self._dataset.surface(int(place)) for place in places] if known else []
        words = (self._dataset.words(int(place)) for place in places)
        tokens = [surface.forms for surface in surfaces] if known else [*words]
        if isinstance(self._dataset, HasWholeWords) and self._dataset.whole_words:
            # Each word has what its first token has.
            first = {name: values[..., 0] for name, values in batch.extras.items()}
            batch = replace(
                batch, tokens=batch.tokens[..., 0], mask=batch.mask[..., 0], extras=first
            )
        rows = len(output.rows)
        text, label = row_texts(batch, output), row_labels(batch, output)
        lengths = output.mask.sum(dim=-1).numpy()
        item_logits = pa.nulls(rows, pa.list_(pa.list_(pa.list_(pa.float32()))))
        if output.item_logits is not None:
            item_logits = item_lists(output.item_logits, output.mask)
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
            "attention": item_lists(output.weights, output.mask),
            "item_logits": item_logits,
            "bias": pa.nulls(rows, pa.list_(pa.float32())),
        }
        if output.bias is not None:
            columns["bias"] = output.bias.expand(rows, -1)
        if known:
            columns["text"] = pa.array([surface.text for surface in surfaces])
            offsets = np.array([span for surface in surfaces for span in surface.spans], np.int32)
            pairs = pa.FixedSizeListArray.from_arrays(offsets.ravel(), 2)
            spans_each = np.array([len(surface.spans) for surface in surfaces])
            columns["offsets"] = list_column(pairs, spans_each)
        if batch.query is not None:
            queries = [self._dataset.query_words(int(place)) for place in places]
            allowed = torch.ones(rows, output.logits.shape[1], dtype=torch.bool)
            if batch.allowed_classes is not None:
                allowed = batch.allowed_classes[text]
            columns["query"] = pa.array(queries, pa.list_(pa.string()))
            numbers = allowed.nonzero()[:, 1].numpy()
            columns["allowed"] = list_column(numbers, allowed.sum(dim=-1).numpy())
        extras = {name: values[text].numpy()[seen] for name, values in batch.extras.items()}
        return columns | {name: list_column(values, counts) for name, values in extras.items()}


def item_lists(values: Tensor, mask: Tensor) -> pa.ListArray:
    """For each row M lists of what its items have: a number, or a list of C.

    Values are (R, M, N) or (R, M, N, C), on the CPU; the mask (R, N) has the items of each row.
    """
    rows, lists = values.shape[:2]
    flat = values.numpy()[np.repeat(mask.numpy()[:, None], lists, axis=1)]
    if flat.ndim == 2:
        flat = list_column(flat.ravel(), np.full(len(flat), flat.shape[1]))
    lengths = np.repeat(mask.sum(dim=-1).numpy(), lists)
    return list_column(list_column(flat, lengths), np.full(rows, lists))


def score_columns(scores: Mapping[str, Tensor], mask: Tensor) -> dict[str, pa.ListArray]:
    """Columns `scores_<name>` of scores (R, N): for each row those of its items, by a mask (R, N)."""
    lengths = mask.sum(-1).cpu().numpy()
    return {
        f"{SCORES}{name}": list_column(values.detach()[mask].double().cpu().numpy(), lengths)
        for name, values in scores.items()
    }
