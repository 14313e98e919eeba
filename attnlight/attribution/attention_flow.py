"""Attention flow: the maximum flow through the layers (Abnar & Zuidema, 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import layer_attention, read_shares
from attnlight.probing.replay import layered
from attnlight.probing.row_gradients import text_of_rows

_LONGEST = 256  # tokens; the time grows with the cube of their number
_UNIT = 10**8  # of flow, since scipy's capacities are whole numbers


@dataclass
class AttentionFlow(Attribution):
    """The most that may flow from each token to the state that a row reads, through attention of all layers.

    A token's state in a layer takes at most (A + I) / 2 of each state below, A the mean over heads. Each
    score is a maximum flow by itself, rounded to 1e-8. They are the same for all classes. Where a text's
    attention is above the layers, the flow ends in all states by that attention.

    Raises:
        InputError: A text has more than 256 tokens.
    """

    name = "attention_flow"
    signed = False
    passes = 1

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner, flat = layered(model, self.name), FlatTexts.of(batch)
        lengths = flat.batch.mask.sum(-1)
        if len(batch) and int(lengths.amax()) > _LONGEST:
            raise InputError(
                f"attention_flow takes too long for a text of {int(lengths.amax())} tokens: leave it out, "
                f"or cut texts at {_LONGEST} by `truncate` of `data`."
            )
        matrices = [
            one.weights.double().mean(1).cpu().numpy() for one in layer_attention(owner, batch)
        ]
        shares = read_shares(owner, batch, output).detach().cpu().numpy()
        found = np.zeros_like(shares)
        for row, text in enumerate(text_of_rows(batch, output).tolist()):
            places = flat.batch.mask[text].nonzero().flatten().cpu().numpy()
            own = [matrix[text][np.ix_(places, places)] for matrix in matrices]
            found[row, places] = flows(own, shares[row, places])
        return flat.sums(torch.from_numpy(found).to(output.logits.device)), {}


def flows(
    matrices: Sequence[NDArray[np.float64]], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Maximum flow from each token (N,) to what is read of the last states.

    `matrices` (N, N) are attention by layer, layer 0 first; `shares` (N,) are what is read of each state.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import maximum_flow

    size, layers = len(shares), len(matrices)
    source = (layers + 1) * size  # from which the last states are reached
    parts = [(np.full(size, source), layers * size + np.arange(size), shares)]
    for layer, matrix in enumerate(matrices):
        query, item = np.indices(matrix.shape).reshape(2, -1)
        capacity = (matrix / 2 + np.eye(size) / 2).ravel()
        parts.append(((layer + 1) * size + query, layer * size + item, capacity))
    begins, ends, capacity = (np.concatenate(each) for each in zip(*parts, strict=True))
    whole = np.rint(capacity * _UNIT).astype(np.int32)
    graph = csr_array(coo_array((whole, (begins, ends)), shape=(source + 1, source + 1)))
    found = [maximum_flow(graph, source, token).flow_value for token in range(size)]
    return np.array(found) / _UNIT
