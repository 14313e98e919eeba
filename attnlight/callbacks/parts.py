"""The readout of some rows of an output alone, where tests ask more of these than of others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.readout.heads import PartReadout
from attnlight.functional.readout.opaque import Readout


@runtime_checkable
class ReadsParts(Protocol):
    """A model that reads rows alone by itself, and shares between them what costs time."""

    def readouts_of_rows(self, output: AttentionOutput) -> PartReadout:
        """From some rows (r,) of an output to the readout of candidates of these alone."""
        ...


def readouts_of_parts(
    batch: TextBatch, output: AttentionOutput, model: AttentionModel
) -> PartReadout:
    """From some rows (r,) of an output to the model's readout of candidates of these alone."""
    if isinstance(model, ReadsParts):
        return model.readouts_of_rows(output)
    plain = replace(output, layers=None)

    def part(rows: Tensor) -> Readout:
        chosen = torch.zeros_like(output.mask[:, 0]).index_fill(0, rows, True)
        texts = torch.isin(batch.index, output.rows[rows, 0])
        return partial(model.readout, plain.select(texts, chosen))

    return part
