"""Check that a task's output has attention, and find the texts where it is not finite."""

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput
from attnlight.errors import InputError


def validate_output(outputs: Any, module: pl.LightningModule) -> AttentionOutput:  # noqa: ANN401
    """The output that an evaluation step returned.

    Raises:
        InputError: The step returned no output, or one whose attention has no items.
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
            f"has weights of shape {tuple(output.weights.shape)}, over no items."
        )
    return output


def broken_rows(output: AttentionOutput) -> Tensor | None:
    """Rows of texts whose logits or weights are not all finite, (R,) bool; None if all are.

    All rows of such a text are included, so that a test that encodes texts again gets the same rows
    as the rest of `output`.
    """
    finite = output.logits.isfinite().all(-1) & output.weights.isfinite().flatten(1).all(-1)
    if finite.all():
        return None
    index = output.rows[:, 0]
    return torch.isin(index, index[~finite])
