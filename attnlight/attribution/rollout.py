"""Attention of all layers multiplied (Abnar & Zuidema, 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.probing.layers import layer_attention, output_maps, rolled_out, value_norms
from attnlight.probing.replay import layered


@dataclass
class Rollout(Attribution):
    """Share of each token in the state that a row reads, as attention of all layers mixes states.

    Each layer passes on the mean of a token's state and of the states that it attends to, mean over
    heads: A' = (A + I) / 2. The scores are the row of the product of all A' that belongs to the token
    which is read: of a text the classifying one, of a tagger the row's own. Where a text's attention
    is above the layers, they are the rows' mean by that attention. They are the same for all classes.

    Args:
        of: What A is: `attention`, or `value_norm`, the norm of the sum over heads of weight times
            transformed value (Kobayashi et al., 2020), each row scaled to sum to 1.
    """

    name = "rollout"
    signed = False

    of: Literal["attention", "value_norm"] = "attention"

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner = layered(model, self.name)
        attention = layer_attention(owner, batch)
        if self.of == "attention":
            matrices = [one.weights.double().mean(1) for one in attention]
        else:
            maps = output_maps(owner, batch)
            matrices = [value_norms(*pair) for pair in zip(attention, maps, strict=True)]
        return rolled_out(owner, batch, output, matrices), {}
