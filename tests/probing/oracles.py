"""Leave-one-out by loops: each shortened text is encoded anew, by itself."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.functional import total_variation
from tests.bases import one_text
from tests.callbacks.faithfulness_loops import reduced

Change = Callable[[TextBatch, AttentionOutput], AttentionOutput]


class Hiding(nn.Module):
    """A model that has no more than the Protocol asks for, and may change the output of another."""

    def __init__(self, model: Any, change: Change = lambda batch, output: output) -> None:
        super().__init__()
        self.model, self.change = model, change
        self.embed, self.readout = model.embed, model.readout

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        return self.change(batch, self.model(batch, weights, embeddings))


@torch.no_grad()
def left_out(model: Any, batch: TextBatch, output: AttentionOutput, of_items: bool) -> Tensor:
    """Logits (R, N, C) without each item; rows are `of_items` or texts; NaN if nothing is left."""
    logits = output.logits.new_full((*output.mask.shape, output.logits.shape[1]), torch.nan)
    for text, index in enumerate(batch.index.tolist()):
        rows = (output.rows[:, 0] == index).nonzero().flatten().tolist()
        items = output.mask[rows[0]].nonzero().flatten().tolist()
        for item in items if len(items) > 1 else []:
            after = model(reduced(one_text(batch, text), [item], "delete"))
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
