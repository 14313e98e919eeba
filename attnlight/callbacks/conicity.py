"""How alike are the states that attention weights?"""

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.functional.mean_cosines import mean_cosines
from attnlight.models.readout import Readout
from attnlight.probing.row_gradients import text_of_rows


class Conicity(InterpretabilityTest):
    """How alike are the states that attention weights (Mohankumar et al., 2020)?

    Where all states of a text point in one direction, any attention reads nearly the same from them, so
    that its weights say little of what the prediction depends on. Over the items that attention may
    reach, words or the sentences of a hierarchical model:

    * `conicity`: mean cosine of the states with the mean state, -1 to 1. 1 if all are alike; sizes
      count, since the mean is of the states themselves.
    * `absolute_conicity`: mean size of these cosines, 0 to 1, as the authors' code computes it.

    A text of one item is left out: its state is the mean. If rows are tokens (a tagger), both are of all
    states of its sentence, the same for each of its tokens. `items` is the number of items. With
    `attend_to: states_and_embeddings` states include the embeddings.

    Args:
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    measures = ("conicity", "absolute_conicity")

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        text = text_of_rows(batch, output)
        items = torch.zeros(output.states.shape[:2], dtype=torch.bool, device=text.device)
        items[text] = output.mask
        cosines, count = mean_cosines(output.states.double(), items), items.sum(-1)
        values = {"conicity": cosines, "absolute_conicity": cosines.abs()}
        undefined = count < 2
        columns = {
            name: (each.sum(-1) / count).masked_fill(undefined, torch.nan)[text]
            for name, each in values.items()
        }
        return columns | {"items": readout.lengths}
