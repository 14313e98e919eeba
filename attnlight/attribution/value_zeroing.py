"""Value zeroing: how far a state moves when a token gives nothing to it (Mohebbi et al., 2023)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad
from torch.utils._pytree import tree_map
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.interception import intercept
from attnlight.probing.layers import LayerCall, layer_calls, rolled_out
from attnlight.probing.replay import layered

_TOKENS = 1 << 12  # computed at once


@dataclass
class ValueZeroing(Attribution):
    """Share of each token in the state that a row reads, by what it takes to leave the token's value out.

    In each layer, the value vector of one token is zero in all heads, and the score of that token for a
    state is the cosine distance of the layer's output there from what it is otherwise: residual, norms
    and feed-forward part are included. Rows of these scores are scaled to sum to 1 and multiplied over
    the layers. They are the same for all classes. Each layer is computed once more for each token.
    """

    name = "value_zeroing"
    signed = False

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner, flat = layered(model, self.name), FlatTexts.of(batch).batch
        by_text = [
            [
                changes_of_states(call)
                for call in layer_calls(owner, batch.select(torch.tensor([n])), self.name)
            ]
            for n in range(len(batch))
        ]
        most = flat.mask.shape[1]
        matrices = []
        for of_layer in zip(*by_text, strict=True):
            padded = [pad(part, (0, most - len(part), 0, most - len(part))) for part in of_layer]
            matrices.append(torch.stack(padded))
        return rolled_out(owner, batch, output, matrices, mixed=1.0), {}


@torch.no_grad()
def changes_of_states(call: LayerCall) -> Tensor:
    """Cosine distance of a layer's states (N) of one text without each token's value, (N, N) float64."""
    size = call.states.shape[1]
    found = []
    for tokens in torch.split(
        torch.arange(size, device=call.states.device), max(1, _TOKENS // size)
    ):

        def zeroed(_: Tensor, allowed: Tensor, tokens: Tensor = tokens) -> Tensor:
            kept = torch.ones(len(tokens) + 1, size, dtype=torch.bool, device=allowed.device)
            kept[torch.arange(len(tokens)), tokens] = False  # the last copy is as it was
            return call.attention.weights * kept[:, None, None]

        args, options = tree_map(
            partial(_repeated, copies=len(tokens) + 1), (call.args, call.options)
        )
        with intercept(patch={call.number: zeroed}):
            states = call.module(*args, **options)
        states = (states if isinstance(states, Tensor) else states[0]).double()
        found.append(1 - cosine_similarity(states[:-1], states[-1:], dim=-1))
    return torch.cat(found).mT.clamp(min=0)


def _repeated(value: Any, copies: int) -> Any:  # noqa: ANN401
    """Copies of what a call has for its one text; anything else as it is."""
    of_text = isinstance(value, Tensor) and value.ndim > 1 and len(value) == 1
    return value.expand(copies, *value.shape[1:]) if of_text else value
