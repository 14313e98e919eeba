"""Mapping from output rows to texts: a classifier has one row per text, a tagger several."""

import torch
from torch import Tensor

from attnlight.batch import MARKED, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError


def texts_of_rows(rows: Tensor) -> Tensor:
    """Place of each row's text among the texts of its output, (R,), from rows (R, 2).

    Rows of a text are consecutive and their positions ascend. A new text begins where the index
    changes or the position does not ascend, since copies of one text share an index.
    """
    index, position = rows.unbind(-1)
    new = (index[1:] != index[:-1]) | (position[1:] <= position[:-1])
    return torch.cat([new.new_zeros(min(len(rows), 1)), new]).cumsum(0)


def empty_logits(model: AttentionModel, output: AttentionOutput) -> Tensor:
    """Logits of an empty context, (C,) or (R, C): the `bias` of the output, or what no weights give."""
    if output.bias is not None:
        return output.bias
    return model.readout(output, torch.zeros_like(output.weights).unsqueeze(2)).squeeze(1)


def row_texts(batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Index of each row's text in the batch, (R,)."""
    index, order = batch.index.sort(stable=True)
    return order[torch.searchsorted(index, output.rows[:, 0].contiguous())]


def marked_items(marked: Tensor, batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Whether each item of each row has a marked token, (R, N) bool, from tokens (B, [S,] N)."""
    items = marked if marked.ndim == 2 else marked.any(-1)
    return items[row_texts(batch, output)] & output.mask


def rows_are_texts(batch: TextBatch, output: AttentionOutput) -> bool:
    """Whether the output has one row per text, in order, and not one per token.

    Where every text has a single token, or a single token that is a row, labels or marks decide.
    """
    of_tokens = MARKED in batch.extras or (batch.labels is not None and batch.labels.ndim == 2)
    of_tokens |= batch.target is not None
    return not of_tokens and torch.equal(output.rows[:, 0], batch.index)


def rows_are_items(batch: TextBatch, output: AttentionOutput) -> bool:
    """Whether rows are tokens of the texts themselves, and not texts or tokens of translations."""
    return batch.target is None and not rows_are_texts(batch, output)


def other_items(batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Attended items of each row but the token that the row itself is, (R, N) bool."""
    if not rows_are_items(batch, output):
        return output.mask
    places = torch.arange(output.mask.shape[1], device=output.mask.device)
    return output.mask & (places != output.rows[:, 1:])


def require_rows_of_tokens(batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Place in the batch of each row's text, (R,), for rows that are tokens.

    Raises:
        InputError: The rows of `output` are not tokens of each text of `batch`, in order.
    """
    text = texts_of_rows(output.rows)
    count = int(text[-1]) + 1 if len(text) else 0
    if count != len(batch) or not torch.equal(batch.index[text], output.rows[:, 0]):
        raise InputError(
            "gradients and leave-one-out of items take a model with one row per text, or with rows "
            f"for tokens of every text in their order; this one gave {len(output.rows)} rows for "
            f"{len(batch)} texts."
        )
    return text
