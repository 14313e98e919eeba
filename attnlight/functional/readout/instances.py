"""Which text the rows of an output are of: a classifier has one row per text, a tagger several."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.batch import MARKED, AttentionOutput, TextBatch
from attnlight.errors import InputError


def texts_of_rows(rows: Tensor) -> Tensor:
    """Place of each row's text among the texts of its output, (R,), from rows (R, 2).

    Texts follow each other, and the positions within one ascend; a text is told from the next by
    either, since repeats of padded validation and shortened texts share an index.
    """
    index, position = rows.unbind(-1)
    new = (index[1:] != index[:-1]) | (position[1:] <= position[:-1])
    return torch.cat([new.new_zeros(min(len(rows), 1)), new]).cumsum(0)


def rows_are_texts(batch: TextBatch, output: AttentionOutput) -> bool:
    """Whether the output has one row for each text, in their order, and not for each token.

    Where all texts are of one token, or one token of each is a row, labels or marks say what rows
    are.
    """
    of_tokens = MARKED in batch.extras or (batch.labels is not None and batch.labels.ndim == 2)
    return not of_tokens and torch.equal(output.rows[:, 0], batch.index)


def require_rows_of_tokens(batch: TextBatch, output: AttentionOutput) -> Tensor:
    """Place in the batch of the text of each row, (R,), where rows are tokens.

    Raises:
        InputError: The rows of `output` are not tokens of each text of `batch` in their order.
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
