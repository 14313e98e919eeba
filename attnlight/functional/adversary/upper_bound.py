"""An upper bound on JS for several classes, from the log ratio of each pair of them."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlight.functional.adversary.exact import js_from, max_js_attention, one_item_js
from attnlight.functional.adversary.multiclass import log_ratio_bounds
from attnlight.functional.readout.affine import read

# Pairs of classes, each of one row, that are solved for at once; pairs of all rows that are checked
# at once.
_SOLVED, _CHECKED = 1 << 13, 1 << 20


def bound_by_pairs(own: Tensor, items: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """A bound on the JS of all attentions that keep the prediction: the least over pairs of classes.

    A prediction within epsilon keeps the log ratio of each pair of classes in bounds, and for one
    pair the largest JS is known exactly. Pairs that the lightest item alone keeps in bounds say
    nothing, since no attention is further than that; so do pairs of classes which are both of a
    probability up to epsilon.

    Args:
        own: The model's attention, (R, N) float64, 0 off the mask.
        items: Item logits (R, N, C) float64, finite.
        mask: What attention may reach, (R, N) bool, something in each row.
        epsilon: Largest total variation distance between the predictions.

    Returns:
        (R,) float64, in nats.
    """
    prediction = read(own, items).softmax(-1)
    upper, light = one_item_js(own).masked_fill(~mask, -1.0).max(-1)
    rows, classes = torch.arange(len(own), device=own.device), items.shape[-1]
    first, second = torch.triu_indices(classes, classes, 1, device=own.device)
    for part in torch.split(rows, max(1, _CHECKED // len(first))):
        own_first, own_second = prediction[part][:, first], prediction[part][:, second]
        low, high = log_ratio_bounds(own_first, own_second, epsilon)
        lightest = items[part, light[part]]
        lead = lightest[:, first] - lightest[:, second]
        row, pair = ((lead < low) | (lead > high)).nonzero().unbind(-1)
        for some in torch.split(torch.arange(len(row), device=own.device), _SOLVED):
            at, bounds = part[row[some]], (row[some], pair[some])
            e = items[at, :, first[pair[some]]] - items[at, :, second[pair[some]]]
            ends = low[bounds][:, None], high[bounds][:, None]
            vertex, _ = max_js_attention(own[at], e, *ends, mask[at])
            upper = upper.scatter_reduce(0, at, js_from(own[at], vertex), "amin")
    return upper
