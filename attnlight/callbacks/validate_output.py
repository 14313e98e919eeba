"""What tests take from a task: an output with attention, of texts where it is finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import AttentionOutput
from attnlight.errors import InputError

_NAMED = 5


def validate_output(outputs: Any, module: pl.LightningModule) -> AttentionOutput:  # noqa: ANN401
    """The output that an evaluation step returned.

    Raises:
        InputError: The step returned none, or one whose attention is over no items.
    """
    output = outputs.get("output") if isinstance(outputs, Mapping) else None
    if not isinstance(output, AttentionOutput):
        raise InputError(
            f"interpretability tests need evaluation steps that return {{'loss', 'output'}} with "
            f"an AttentionOutput; those of {type(module).__name__} do not."
        )
    if not output.weights.shape[1:].numel():
        raise InputError(
            f"interpretability tests need a model with attention; that of {type(module).__name__} "
            f"gives weights of shape {tuple(output.weights.shape)}, over no items."
        )
    return output


def broken_rows(output: AttentionOutput) -> Tensor | None:
    """Rows of texts whose logits or weights are not all finite, (R,) bool; None where all are.

    A text goes with all its rows, so that a test that encodes the others again gets the rows that
    are left in `output`.
    """
    finite = output.logits.isfinite().all(-1) & output.weights.isfinite().flatten(1).all(-1)
    if finite.all():
        return None
    index = output.rows[:, 0]
    return torch.isin(index, index[~finite])


def broken_sentence(stage: str, epoch: int | None, index: NDArray[np.int64]) -> str:
    """Name up to five texts that were not measured, from the dataset index of each of their rows."""
    when = stage if epoch is None else f"{stage}, epoch {epoch}"
    texts = np.unique(index)
    named = ", ".join(map(str, texts[:_NAMED])) + (", ..." if len(texts) > _NAMED else "")
    return (
        f"{when}: not measured, for their logits or attention are not finite: {len(index):,} "
        f"instances (dataset index {named})."
    )
