"""Leave-one-out by loops: each shortened text is encoded anew, by itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.functional import total_variation

Change = Callable[[TextBatch, AttentionOutput], AttentionOutput]


class Hiding:
    """A model that has no more than the Protocol asks for, and may change the output of another."""

    def __init__(self, model: Any, change: Change = lambda batch, output: output) -> None:
        self.model, self.change = model, change
        self.embed, self.readout = model.embed, model.readout

    def __call__(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        return self.change(batch, self.model(batch, weights, embeddings))


def without(batch: TextBatch, text: int, item: int) -> TextBatch:
    """One text of a batch without padding and without one of its words or sentences."""
    alone = batch.select(torch.arange(len(batch)) == text)
    real = alone.mask[0] if alone.mask.ndim == 2 else alone.mask[0].any(-1)
    kept = [place for place in real.nonzero().flatten().tolist() if place != item]
    extras = {name: values[:, kept] for name, values in alone.extras.items()}
    tokens, mask = alone.tokens[:, kept], alone.mask[:, kept]
    return replace(alone, tokens=tokens, mask=mask, labels=None, extras=extras)


@torch.no_grad()
def left_out(model: Any, batch: TextBatch, output: AttentionOutput, of_items: bool) -> Tensor:
    """Logits (R, N, C) without each item; rows are `of_items` or texts; NaN if nothing is left."""
    logits = output.logits.new_full((*output.mask.shape, output.logits.shape[1]), torch.nan)
    for text, index in enumerate(batch.index.tolist()):
        rows = (output.rows[:, 0] == index).nonzero().flatten().tolist()
        items = output.mask[rows[0]].nonzero().flatten().tolist()
        for item in items if len(items) > 1 else []:
            after = model(without(batch, text, item))
            places = after.rows[:, 1].tolist()
            for row, place in zip(rows, output.rows[rows, 1].tolist(), strict=True):
                if not of_items:
                    logits[row, item] = after.logits[0]
                elif place != item:
                    logits[row, item] = after.logits[places.index(place - (place > item))]
    return logits


def moved(model: Any, batch: TextBatch, output: AttentionOutput, of_items: bool) -> Tensor:
    """Total variation distance (R, N) of the predictions without each item."""
    after = left_out(model, batch, output, of_items).double().softmax(-1)
    return total_variation(after, output.logits.double().softmax(-1).unsqueeze(1).expand_as(after))
